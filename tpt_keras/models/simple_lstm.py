import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.models.lstm_model import LSTMModel


@keras.saving.register_keras_serializable("tpt_keras")
class SimpleLSTM(LSTMModel):
    """One LSTM that reads the question, thinks and writes the answer.

    The simple LSTM of Saxton et al., 2019. Its inputs are one-hot
    symbols: those of the question; zeros for a number of thinking steps; then
    the start symbol and the answer's own symbols. What follows a symbol of the
    answer is an affine map of the hidden state.

    Padding behind a question is skipped, so that what is answered does not
    depend on the length of the batch's longest question.

    With V symbols and h hidden units it has `4 h (V + h + 1) + V (h + 1)`
    weights; with the 95 symbols and 2,048 units of Saxton et al. these are
    17,758,303, their 18 million.

    Args:
        config: An `LSTMConfig` without attention.
        **kwargs: Keras's base model arguments.

    Call arguments:
        inputs: See `SequenceToSequence`.
        training: Whether to apply dropout.

    Returns:
        float32 logits `(batch, target_length, vocabulary_size)`.

    Raises:
        UsageError: If `config` is something else, or its vocabulary is none.

    Example:

    >>> model = SimpleLSTM.from_preset("lstm", hidden_dim=32)
    >>> ids = keras.ops.array([[1, 15, 9, 15, 2]])
    >>> model({"encoder_token_ids": ids, "decoder_token_ids": ids}).shape
    (1, 5, 72)
    >>> len(model.solve(["What is 1 + 1?"]))
    1
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.lstm = self._lstm(config.hidden_dim, "lstm", return_state=True)
        self.build()

    @classmethod
    def takes(cls, config):
        return super().takes(config) and config.attention == "none"

    def build(self, input_shape=None):
        # As of every model here, no weight depends on the input's shape.
        self.lstm.build((None, None, self.config.vocabulary_size))
        self.logits_dense.build((None, self.config.hidden_dim))
        self.built = True

    def call(self, inputs, training=None):
        states = self.encode(inputs["encoder_token_ids"], training=training)
        hidden, *_ = self.lstm(
            self._one_hot(inputs["decoder_token_ids"]),
            initial_state=list(states),
            training=training,
        )
        return self._logits(hidden, training)

    def encode(self, encoder_token_ids, training=None):
        """The state of the LSTM that has read a question and thought.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            training: Whether to apply dropout; there is none here.

        Returns:
            Tuple of the hidden and the cell state `(batch, hidden_dim)`.
        """
        shape = (ops.shape(encoder_token_ids)[0], self.config.thinking_steps)
        blanks = ops.zeros(
            (*shape, self.config.vocabulary_size), dtype=self.compute_dtype
        )
        mask = self.padding_mask(encoder_token_ids)
        _, *states = self.lstm(
            ops.concatenate([self._one_hot(encoder_token_ids), blanks], axis=1),
            mask=ops.concatenate([mask, ops.ones(shape, dtype="bool")], axis=1),
            training=training,
        )
        return tuple(states)

    def init_cache(self, encoder_token_ids, max_length):
        check_positive_integer("max_length", max_length)
        return {"states": self.encode(encoder_token_ids)}

    def decode_step(self, token_ids, cache, cache_update_index):
        hidden, states = self.lstm.cell(
            self._one_hot(token_ids), list(cache["states"])
        )
        return self._logits(hidden), {**cache, "states": tuple(states)}

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers import Projection
from tpt_keras.models.lstm_model import LSTMModel


@keras.saving.register_keras_serializable("tpt_keras")
class AttentionalLSTM(LSTMModel):
    """An LSTM that writes the answer while it looks at the question.

    The attentional LSTM of Saxton et al., 2019, with the
    bidirectional encoder. They take its attention from Bahdanau et al., 2014,
    and give no equations. Here, with x the one-hot symbols of the question and
    y those of the answer so far, the start symbol first:

        m_j = W_m [LSTM_forward(x)_j; LSTM_backward(x)_j] + b_m
        a_ij = softmax_j(v . tanh(W_q h_(i-1) + m_j))
        r_i = sum_j a_ij m_j
        h_i, c_i = LSTM([y_i; r_i], h_(i-1), c_(i-1))
        logits_i = W_o [h_i; r_i] + b_o

    The score, the hidden state that asks and where the answer's LSTM gets what
    was read are Bahdanau's (their equation 6 and appendix A). Different from
    them:

    - The LSTM is an LSTM and no gated unit, and the output an affine map and
      no maxout.
    - What is read is `m_j`, which they only score with, and not the encoder's
      output; and the LSTM starts at zero and not at a map of the encoder's
      state. At the sizes of Saxton et al. there are then as many weights as
      they count, 26 million; Bahdanau's way would take 31 million.

    Blank steps before the answer, if any, read the question as well. Padding
    behind a question is skipped by the encoder and not attended to.

    Weights, with V symbols, h = `hidden_dim`, e = `encoder_dim` and a =
    `attention_dim`:

        8 e (V + e + 1)         the encoder's two directions
        + (2 e + 1) a           W_m, b_m
        + h a + a               W_q, v
        + 4 h (V + a + h + 1)   the LSTM
        + V (h + a + 1)         W_o, b_o

    With 95 symbols these are 26,065,503. Dropout, if any, is that of `m_j`,
    too.

    Args:
        config: An `LSTMConfig` with additive attention.
        **kwargs: Keras's base model arguments.

    Call arguments:
        inputs: See `SequenceToSequence`.
        training: Whether to apply dropout.

    Returns:
        float32 logits `(batch, target_length, vocabulary_size)`.

    Raises:
        UsageError: If `config` is something else, or its vocabulary is none.

    Example:

    >>> model = AttentionalLSTM.from_preset(
    ...     "lstm_attention", hidden_dim=32, encoder_dim=8, attention_dim=8
    ... )
    >>> ids = keras.ops.array([[1, 15, 9, 15, 2]])
    >>> model({"encoder_token_ids": ids, "decoder_token_ids": ids}).shape
    (1, 5, 72)
    >>> len(model.solve(["What is 1 + 1?"]))
    1
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.forward_encoder = self._lstm(config.encoder_dim, "forward_encoder")
        self.backward_encoder = self._lstm(
            config.encoder_dim, "backward_encoder", go_backwards=True
        )
        self.memory_dense = Projection(
            config.attention_dim, dtype=self.dtype_policy, name="memory"
        )
        self.query_dense = Projection(
            config.attention_dim,
            use_bias=False,  # the memory has one, which is added to it
            dtype=self.dtype_policy,
            name="query",
        )
        self.attention = keras.layers.AdditiveAttention(
            dtype=self.dtype_policy, name="attention"
        )
        self.decoder_cell = keras.layers.LSTMCell(
            config.hidden_dim,
            recurrent_initializer="glorot_uniform",  # as in `LSTMModel`
            dtype=self.dtype_policy,
            name="decoder_cell",
        )
        self.build()

    @classmethod
    def takes(cls, config):
        return super().takes(config) and config.attention == "additive"

    def build(self, input_shape=None):
        # As of every model here, no weight depends on the input's shape.
        config = self.config
        memory = (None, None, config.attention_dim)
        self.forward_encoder.build((None, None, config.vocabulary_size))
        self.backward_encoder.build((None, None, config.vocabulary_size))
        self.memory_dense.build((None, None, 2 * config.encoder_dim))
        self.query_dense.build((None, config.hidden_dim))
        self.attention.build([memory, memory])
        self.decoder_cell.build(
            (None, config.vocabulary_size + config.attention_dim)
        )
        self.logits_dense.build(
            (None, config.hidden_dim + config.attention_dim)
        )
        self.built = True

    def call(self, inputs, training=None):
        encoder_token_ids = inputs["encoder_token_ids"]
        mask = self.padding_mask(encoder_token_ids)
        memory = self.encode(encoder_token_ids, training=training)
        states = self._think(memory, mask)
        _, outputs = self._run(
            self._one_hot(inputs["decoder_token_ids"]), states, memory, mask
        )
        return self._logits(outputs, training)

    def encode(self, encoder_token_ids, training=None):
        """What is to be read of a question, at each of its symbols.

        Args:
            encoder_token_ids: Tensor `(batch, source_length)`.
            training: Whether to apply dropout.

        Returns:
            Tensor `(batch, source_length, attention_dim)`.
        """
        x = self._one_hot(encoder_token_ids)
        mask = self.padding_mask(encoder_token_ids)
        # Going backwards, padding comes first, and leaves the state at zero.
        forward = self.forward_encoder(x, mask=mask, training=training)
        backward = self.backward_encoder(x, mask=mask, training=training)
        memory = self.memory_dense(
            ops.concatenate([forward, ops.flip(backward, axis=1)], axis=-1)
        )
        return self.dropout_layer(memory, training=training)

    def init_cache(self, encoder_token_ids, max_length):
        check_positive_integer("max_length", max_length)
        mask = self.padding_mask(encoder_token_ids)
        memory = self.encode(encoder_token_ids)
        return {
            "encoder_padding_mask": mask,
            "memory": memory,
            "states": self._think(memory, mask),
        }

    def decode_step(self, token_ids, cache, cache_update_index):
        output, states = self._step(
            self._one_hot(token_ids),
            cache["states"],
            cache["memory"],
            cache["encoder_padding_mask"],
        )
        return self._logits(output), {**cache, "states": states}

    def _think(self, memory, mask):
        """The states in which the answer begins."""
        batch_size = ops.shape(memory)[0]
        states = tuple(self.decoder_cell.get_initial_state(batch_size))
        steps = self.config.thinking_steps
        if steps:
            shape = (batch_size, steps, self.config.vocabulary_size)
            blanks = ops.zeros(shape, dtype=self.compute_dtype)
            states, _ = self._run(blanks, states, memory, mask)
        return states

    def _run(self, x, states, memory, mask):
        """All steps of inputs `(batch, length, vocabulary_size)`.

        Returns:
            The last states and the outputs `(batch, length, hidden_dim +
            attention_dim)`.
        """
        # Not `ops.scan`, whose gradient XLA cannot compile on TensorFlow.
        outputs, *states = keras.layers.RNN(
            _Reader(self._step, self.decoder_cell, memory, mask),
            return_sequences=True,
            return_state=True,
            dtype=self.dtype_policy,
        )(x, initial_state=list(states))
        return tuple(states), outputs

    def _step(self, x, states, memory, mask):
        """One step: what the logits are made of, and the new states."""
        query = ops.expand_dims(self.query_dense(states[0]), 1)
        read = self.attention([query, memory], mask=[None, mask])
        read = ops.squeeze(read, 1)
        hidden, states = self.decoder_cell(
            ops.concatenate([x, read], axis=-1), list(states)
        )
        return ops.concatenate([hidden, read], axis=-1), tuple(states)


class _Reader:
    """A decoder's cell with a question before it, for Keras to run."""

    def __init__(self, step, cell, memory, mask):
        self._step = step
        self._question = (memory, mask)
        self.state_size = cell.state_size
        self.compute_dtype = cell.compute_dtype

    def __call__(self, inputs, states):
        return self.call(inputs, states)

    def call(self, inputs, states):
        output, states = self._step(inputs, states, *self._question)
        return output, list(states)

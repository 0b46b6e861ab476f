"""The LSTMs of Saxton et al. (2019), the baselines of the data."""

from typing import Any

import keras
from keras import ops

from tpt_keras.layers import Projection
from tpt_keras.layers.base_layer import Dropout
from tpt_keras.models.configs import LSTMConfig
from tpt_keras.models.sequence_to_sequence import SequenceToSequence


class LSTMModel(SequenceToSequence):
    """Base class of the LSTMs: one-hot inputs and an affine output map.

    Saxton et al. do not describe the initialization. Here kernels are Xavier
    uniform and biases zero, except those of the forget gates, which are one.
    Dropout applies to the inputs of the output map.
    """

    config_class = LSTMConfig
    config: LSTMConfig
    changing_caches = ("states",)
    # The `attention` of the configurations that a subclass takes.
    config_attention: str | None = None

    def __init__(self, config: LSTMConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.dropout_layer = Dropout(config.dropout, dtype=self.dtype_policy)
        self.logits_dense = Projection(
            config.vocabulary_size, dtype=self.dtype_policy, name="logits"
        )

    @classmethod
    def takes(cls, config: Any) -> bool:
        return (
            super().takes(config) and config.attention == cls.config_attention
        )

    def _lstm(self, units, name, **kwargs):
        return keras.layers.LSTM(
            units,
            # An orthogonal matrix of this size takes seconds, and there is
            # none in bfloat16.
            recurrent_initializer="glorot_uniform",
            return_sequences=True,
            # An exported graph with cuDNN's op needs a GPU, and XLA does not
            # compile it.
            use_cudnn=False,
            unroll=_unrolls(),
            dtype=self.dtype_policy,
            name=name,
            **kwargs,
        )

    def _one_hot(self, token_ids):
        return ops.one_hot(
            ops.cast(token_ids, "int32"),
            self.config.vocabulary_size,
            dtype=self.compute_dtype,
        )

    def _logits(self, hidden, training=None):
        hidden = self.dropout_layer(hidden, training=training)
        return ops.cast(self.logits_dense(hidden), "float32")


@keras.saving.register_keras_serializable("tpt_keras")
class SimpleLSTM(LSTMModel):
    """An LSTM that reads the question, thinks, and writes the answer.

    The simple LSTM of Saxton et al., 2019, called as every
    `SequenceToSequence`. Its inputs are one-hot symbols: those of the question;
    zeros for a number of thinking steps; the start symbol and the answer's own
    symbols. The logits of the next symbol are an affine map of the hidden
    state. Padding behind a question is skipped.

    Args:
        config: An `LSTMConfig` without attention.
        **kwargs: Keras's base model arguments.

    Example:

    >>> model = SimpleLSTM.from_preset("lstm", hidden_dim=32)
    >>> ids = keras.ops.array([[1, 15, 9, 15, 2]])
    >>> model({"encoder_token_ids": ids, "decoder_token_ids": ids}).shape
    (1, 5, 72)
    """

    config_attention = "none"

    def __init__(self, config: LSTMConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.lstm = self._lstm(config.hidden_dim, "lstm", return_state=True)
        self.build()

    def build(self, input_shape=None):
        # No weight depends on the shape of the inputs.
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
        return {"states": self.encode(encoder_token_ids)}

    def decode_step(self, token_ids, cache, cache_update_index):
        hidden, states = self.lstm.cell(
            self._one_hot(token_ids), list(cache["states"])
        )
        return self._logits(hidden), {**cache, "states": tuple(states)}


@keras.saving.register_keras_serializable("tpt_keras")
class AttentionalLSTM(LSTMModel):
    """An LSTM that attends to the question while it writes the answer.

    The attentional LSTM of Saxton et al., 2019, with the bidirectional
    encoder. They cite Bahdanau et al., 2014, for its attention and give no
    equations. With x the one-hot symbols of the question, and y those of the
    answer so far after the start symbol:

        m_j = W_m [LSTM_forward(x)_j; LSTM_backward(x)_j] + b_m
        a_ij = softmax_j(v . tanh(W_q h_(i-1) + m_j))
        r_i = sum_j a_ij m_j
        h_i, c_i = LSTM([y_i; r_i], h_(i-1), c_(i-1))
        logits_i = W_o [h_i; r_i] + b_o

    docs/paper.md lists the differences from Bahdanau's equations.

    Blank steps before the answer attend to the question too. The encoder skips
    padding, and the attention masks it. Dropout also applies to `m_j`. It is
    called as every `SequenceToSequence`.

    Args:
        config: An `LSTMConfig` with additive attention.
        **kwargs: Keras's base model arguments.

    Example:

    >>> model = AttentionalLSTM.from_preset(
    ...     "lstm_attention", hidden_dim=32, encoder_dim=8, attention_dim=8
    ... )
    >>> ids = keras.ops.array([[1, 15, 9, 15, 2]])
    >>> model({"encoder_token_ids": ids, "decoder_token_ids": ids}).shape
    (1, 5, 72)
    """

    config_attention = "additive"

    def __init__(self, config: LSTMConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.forward_encoder = self._lstm(config.encoder_dim, "forward_encoder")
        self.backward_encoder = self._lstm(
            config.encoder_dim, "backward_encoder"
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

    def build(self, input_shape=None):
        # No weight depends on the shape of the inputs.
        config = self.config
        num_symbols, read_dim = config.vocabulary_size, config.attention_dim
        self.forward_encoder.build((None, None, num_symbols))
        self.backward_encoder.build((None, None, num_symbols))
        self.memory_dense.build((None, None, 2 * config.encoder_dim))
        self.query_dense.build((None, config.hidden_dim))
        self.attention.build(2 * [(None, None, read_dim)])
        self.decoder_cell.build((None, num_symbols + read_dim))
        self.logits_dense.build((None, config.hidden_dim + read_dim))
        self.built = True

    def call(self, inputs, training=None):
        encoder_token_ids = inputs["encoder_token_ids"]
        mask = self.padding_mask(encoder_token_ids)
        memory = self.encode(encoder_token_ids, training=training)
        states = self._think(memory, mask)
        answers = self._one_hot(inputs["decoder_token_ids"])
        _, outputs = self._run(answers, states, memory, mask)
        return self._logits(outputs, training)

    def encode(self, encoder_token_ids, training=None):
        x = self._one_hot(encoder_token_ids)
        mask = self.padding_mask(encoder_token_ids)
        forward = self.forward_encoder(x, mask=mask, training=training)
        # Backwards, padding comes first and leaves the state at zero.
        x, mask = ops.flip(x, axis=1), ops.flip(mask, axis=1)
        backward = self.backward_encoder(x, mask=mask, training=training)
        both = ops.concatenate([forward, ops.flip(backward, axis=1)], axis=-1)
        return self.dropout_layer(self.memory_dense(both), training=training)

    def init_cache(self, encoder_token_ids, max_length):
        mask = self.padding_mask(encoder_token_ids)
        memory = self.encode(encoder_token_ids)
        return {
            "encoder_padding_mask": mask,
            "memory": memory,
            "states": self._think(memory, mask),
        }

    def decode_step(self, token_ids, cache, cache_update_index):
        x = self._one_hot(token_ids)
        question = cache["memory"], cache["encoder_padding_mask"]
        output, states = self._step(x, cache["states"], *question)
        return self._logits(output), {**cache, "states": states}

    def _think(self, memory, mask):
        batch_size = ops.shape(memory)[0]
        states = tuple(self.decoder_cell.get_initial_state(batch_size))
        steps = self.config.thinking_steps
        if steps:
            shape = (batch_size, steps, self.config.vocabulary_size)
            blanks = ops.zeros(shape, dtype=self.compute_dtype)
            states, _ = self._run(blanks, states, memory, mask)
        return states

    def _run(self, x, states, memory, mask):
        # XLA on TensorFlow cannot compile the gradient of `ops.scan`.
        outputs, *states = keras.layers.RNN(
            _Reader(self._step, self.decoder_cell, memory, mask),
            return_sequences=True,
            return_state=True,
            unroll=_unrolls(),
            dtype=self.dtype_policy,
        )(x, initial_state=list(states))
        return tuple(states), outputs

    def _step(self, x, states, memory, mask):
        query = ops.expand_dims(self.query_dense(states[0]), 1)
        read = self.attention([query, memory], mask=[None, mask])
        read = ops.squeeze(read, 1)
        hidden, states = self.decoder_cell(
            ops.concatenate([x, read], axis=-1), list(states)
        )
        return ops.concatenate([hidden, read], axis=-1), tuple(states)


def _unrolls():
    # PyTorch's loop over the time is Python's anyway. Only an unrolled one can
    # be exported.
    return keras.backend.backend() == "torch"


class _Reader:
    """A cell for Keras's RNN that attends to a question."""

    def __init__(self, step, cell, memory, mask):
        self._step = step
        self._question = (memory, mask)
        self.state_size = cell.state_size
        self.compute_dtype = cell.compute_dtype

    def call(self, inputs, states):
        output, states = self._step(inputs, states, *self._question)
        return output, list(states)

    __call__ = call

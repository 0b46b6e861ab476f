import keras
from keras import ops

from tpt_keras.layers import Projection
from tpt_keras.models.lstm_config import LSTMConfig
from tpt_keras.models.sequence_to_sequence import SequenceToSequence


class LSTMModel(SequenceToSequence):
    """What the models of LSTMs have in common: their inputs and outputs.

    Symbols go in one-hot; what comes out is an affine map. Where Saxton et al.
    are silent: kernels are initialised Xavier uniform, biases zero, but for
    the forget gates', which are one; dropout, if any, is that of what the
    logits are made of.

    Args:
        config: An `LSTMConfig`.
        **kwargs: Keras's base model arguments.
    """

    config_class = LSTMConfig
    changing_caches = ("states",)

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.dropout_layer = keras.layers.Dropout(
            config.dropout, dtype=self.dtype_policy
        )
        self.logits_dense = Projection(
            config.vocabulary_size, dtype=self.dtype_policy, name="logits"
        )

    def _lstm(self, units, name, **kwargs):
        """A layer that reads one-hot symbols and gives all its outputs."""
        return keras.layers.LSTM(
            units,
            # An orthogonal matrix of a row's size takes seconds, and has no
            # bfloat16.
            recurrent_initializer="glorot_uniform",
            return_sequences=True,
            # A graph with cuDNN's op, exported where there is a GPU, would run
            # nowhere else; nor does XLA compile it.
            use_cudnn=False,
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

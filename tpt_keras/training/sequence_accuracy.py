import keras
from keras import ops

from tpt_keras.training.token_accuracy import is_predicted
from tpt_keras.training.token_weights import token_weights


@keras.saving.register_keras_serializable("tpt_keras")
class SequenceAccuracy(keras.metrics.Mean):
    """Share of answers of which every character is right.

    The likeliest tokens are compared with all non-padding target tokens, the
    end symbol included. With the right answer so far as the model's input,
    that is exactly when greedy decoding gives the answer. A row of nothing but
    padding is no answer.

    With `sample_weight`, `(batch,)` or `(batch, length)`, a token of weight 0
    is like padding, and an answer counts for the mean weight of its others.

    Args:
        pad_id: Token id of padding, which counts for nothing.
        name: Name of the metric.
        **kwargs: Keras's base metric arguments.
    """

    def __init__(self, pad_id, name="sequence_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)
        self.pad_id = pad_id

    def update_state(self, y_true, y_pred, sample_weight=None):
        weights = token_weights(y_true, self.pad_id, sample_weight)
        counts = ops.not_equal(weights, 0.0)
        is_right = ops.logical_or(
            is_predicted(y_true, y_pred), ops.logical_not(counts)
        )
        super().update_state(
            ops.all(is_right, axis=-1),
            sample_weight=ops.divide_no_nan(
                ops.sum(weights, axis=-1),
                ops.sum(ops.cast(counts, weights.dtype), axis=-1),
            ),
        )

    def get_config(self):
        return {**super().get_config(), "pad_id": self.pad_id}

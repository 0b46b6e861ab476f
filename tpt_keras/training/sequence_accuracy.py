import keras
from keras import ops

from tpt_keras.training.token_accuracy import is_predicted


@keras.saving.register_keras_serializable("tpt_keras")
class SequenceAccuracy(keras.metrics.Mean):
    """Share of answers of which every character is right.

    The likeliest tokens are compared with all non-padding target tokens, the
    end symbol included. With the right answer so far as the model's input,
    that is exactly when greedy decoding gives the answer.

    Args:
        pad_id: Token id of padding, which counts for nothing.
        name: Name of the metric.
        **kwargs: Keras's base metric arguments.
    """

    def __init__(self, pad_id, name="sequence_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)
        self.pad_id = pad_id

    def update_state(self, y_true, y_pred, sample_weight=None):
        is_right = ops.logical_or(
            is_predicted(y_true, y_pred), ops.equal(y_true, self.pad_id)
        )
        super().update_state(
            ops.all(is_right, axis=-1), sample_weight=sample_weight
        )

    def get_config(self):
        return {**super().get_config(), "pad_id": self.pad_id}

import keras
from keras import ops

from tpt_keras.training.token_weights import token_weights


@keras.saving.register_keras_serializable("tpt_keras")
class TokenAccuracy(keras.metrics.Mean):
    """Share of non-padding target tokens whose logit is the largest.

    With `sample_weight`, `(batch,)` or `(batch, length)`, a weighted mean.

    Args:
        pad_id: Token id of padding, which counts for nothing.
        name: Name of the metric.
        **kwargs: Keras's base metric arguments.
    """

    def __init__(self, pad_id, name="token_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)
        self.pad_id = pad_id

    def update_state(self, y_true, y_pred, sample_weight=None):
        # Flat, for Keras would first average every row, so that a batch
        # counted for less the more padding it has.
        super().update_state(
            ops.ravel(is_predicted(y_true, y_pred)),
            sample_weight=ops.ravel(
                token_weights(y_true, self.pad_id, sample_weight)
            ),
        )

    def get_config(self):
        return {**super().get_config(), "pad_id": self.pad_id}


def is_predicted(token_ids, logits):
    """Whether each token is the likeliest.

    Args:
        token_ids: Tensor `(batch, length)`.
        logits: Tensor `(batch, length, vocabulary_size)`.

    Returns:
        Boolean tensor `(batch, length)`.
    """
    predicted = ops.cast(ops.argmax(logits, axis=-1), token_ids.dtype)
    return ops.equal(token_ids, predicted)

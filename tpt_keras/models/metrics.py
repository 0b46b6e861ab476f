"""Means over the tokens of logits that are no padding."""

import keras
from keras import ops


def token_weights(is_token, sample_weight=None):
    """Returns float32 weights of tokens `(batch, length)`, 0 where none is.

    `sample_weight` is `(batch,)`, `(batch, 1)` or `(batch, length)`, by default
    1.
    """
    weights = ops.cast(is_token, "float32")
    if sample_weight is not None:
        sample_weight = ops.cast(sample_weight, "float32")
        if len(sample_weight.shape) == 1:
            sample_weight = ops.expand_dims(sample_weight, 1)
        weights = weights * sample_weight
    return weights


def is_predicted(logits, targets):
    """Boolean tensor like `targets`, true where the logits predict them."""
    predicted = ops.argmax(logits, axis=-1)
    return ops.equal(ops.cast(targets, predicted.dtype), predicted)


def right_answers(logits, targets, weights):
    """Finds the answers that are right in all tokens that have a weight.

    Returns:
        Boolean tensor `(batch,)`, and the answers' weights `(batch,)`: the mean
        weight of the tokens that have one, 0 for a row of padding.
    """
    counts = ops.not_equal(weights, 0.0)
    is_right = ops.all(
        ops.logical_or(is_predicted(logits, targets), ops.logical_not(counts)),
        axis=-1,
    )
    return is_right, ops.divide_no_nan(
        ops.sum(weights, axis=-1), ops.sum(ops.cast(counts, "float32"), axis=-1)
    )


@keras.saving.register_keras_serializable("tpt_keras")
class TokenAccuracy(keras.metrics.Mean):
    """The share of the tokens that are predicted, as a weighted metric."""

    _direction = "up"  # Keras's callbacks read it in their mode "auto".

    def update_state(self, y_true, y_pred, sample_weight=None):
        weights = token_weights(ops.ones_like(y_true), sample_weight)
        values, weights = self.values(y_pred, y_true, weights)
        # Keras would divide the sums of a batch by its length.
        super().update_state(ops.reshape(values, -1), ops.reshape(weights, -1))

    def values(self, logits, targets, weights):
        """Returns what the mean is taken of, and its weights."""
        return is_predicted(logits, targets), weights


@keras.saving.register_keras_serializable("tpt_keras")
class SequenceAccuracy(TokenAccuracy):
    """The share of the answers that are right in every token."""

    def values(self, logits, targets, weights):
        return right_answers(logits, targets, weights)


class TokenMean(keras.metrics.Mean):
    """The mean of the losses of batches, each weighted by its tokens.

    Keras updates it with a batch's loss and its number of rows.
    `LogitsModel.compute_metrics` comes after that, and knows the tokens. A
    `train_step` of your own gives a loss alone, which counts at once.
    """

    _batch = None

    def update_state(self, values, sample_weight=None):
        self._batch = values, sample_weight
        if sample_weight is None:
            self.add_batch(None)

    def add_batch(self, weight):
        """Adds the batch's loss with a weight, by default Keras's."""
        if self._batch is not None:  # Keras also computes metrics to build them
            (loss, rows), self._batch = self._batch, None
            super().update_state(loss, rows if weight is None else weight)


class Masked(keras.layers.Layer):
    """Returns its first input, with the second as its mask.

    It is Keras's public way to give a tensor a mask.
    """

    def __init__(self) -> None:
        super().__init__(dtype="float32")
        self.supports_masking = True

    def call(self, inputs):
        return inputs[0]

    def compute_mask(self, inputs, previous_mask):
        return inputs[1]

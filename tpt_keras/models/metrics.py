"""Means over the tokens of logits that are no padding."""

from typing import Any

import keras
from keras import ops

from tpt_keras.typing import Tensor


def token_weights(
    targets: Tensor, pad_id: int | None, sample_weight: Any = None
) -> Tensor:
    """Computes the weight of each target token.

    Args:
        targets: Token ids `(batch, length)`.
        pad_id: Token id of padding, which gets the weight 0. `None`: there is
            no padding.
        sample_weight: Weights `(batch,)`, `(batch, 1)` or `(batch, length)`.
            Defaults to 1.

    Returns:
        float32 weights `(batch, length)`.
    """
    weights = ops.ones_like(targets, dtype="float32")
    if pad_id is not None:
        weights = ops.cast(ops.not_equal(targets, pad_id), "float32")
    if sample_weight is not None:
        sample_weight = ops.cast(sample_weight, "float32")
        if len(sample_weight.shape) == 1:
            sample_weight = ops.expand_dims(sample_weight, 1)
        weights = weights * sample_weight
    return weights


def loss_divisor(loss, logits, mask, sample_weight):
    """Computes what Keras divides the sum of a batch's losses by.

    Args:
        loss: The loss that Keras was given.
        logits: The outputs `(batch, length, vocabulary_size)`.
        mask: Their mask `(batch, length)`, or `None`.
        sample_weight: Weights `(batch, length)`, or `None`.

    Returns:
        A scalar. `None` for a loss that is not divided.
    """
    (loss,) = keras.tree.flatten(loss) or (None,)
    reduction = getattr(loss, "reduction", "sum_over_batch_size")
    if reduction in ("sum", "none", None):
        return None
    weights = ops.ones_like(logits[..., 0], dtype="float32")
    if mask is not None:
        weights = ops.cast(mask, "float32")
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        weights = weights * sample_weight
    return ops.sum(weights)


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
    """The share of the tokens that are predicted, padding left out.

    Args:
        pad_id: Token id of padding.
        name: The metric's name.
        dtype: The dtype of its sums.
    """

    def __init__(
        self, pad_id: int, name: str = "token_accuracy", dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.pad_id = pad_id

    def update_state(self, y_true, y_pred, sample_weight=None):
        weights = token_weights(y_true, self.pad_id, sample_weight)
        # Keras would divide the sums of a batch by its length.
        values, weights = self.values(y_pred, y_true, weights)
        super().update_state(ops.reshape(values, -1), ops.reshape(weights, -1))

    def values(self, logits, targets, weights):
        """Returns what the mean is taken of, and its weights."""
        return is_predicted(logits, targets), weights

    def get_config(self):
        return {**super().get_config(), "pad_id": self.pad_id}


@keras.saving.register_keras_serializable("tpt_keras")
class SequenceAccuracy(TokenAccuracy):
    """The share of the answers that are right in every token.

    Args:
        pad_id: Token id of padding.
        name: The metric's name.
        dtype: The dtype of its sums.
    """

    def __init__(
        self, pad_id: int, name: str = "sequence_accuracy", dtype: Any = None
    ) -> None:
        super().__init__(pad_id, name=name, dtype=dtype)

    def values(self, logits, targets, weights):
        return right_answers(logits, targets, weights)


class TokenMean(keras.metrics.Mean):
    """The mean of the losses of batches, each weighted by its tokens.

    Keras updates it with a batch's loss and its number of rows.
    `LogitsModel.compute_metrics` comes after that, and knows the tokens.
    """

    _batch = None

    def update_state(self, values, sample_weight=None):
        self._batch = values, sample_weight

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

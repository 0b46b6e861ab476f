"""Masks of attention, true where a query may attend, and attention axes."""

import functools
import math
import numbers
from collections.abc import Sequence

from keras import ops


def merge_masks(query_mask, value_mask, key_mask, attention_mask):
    """Merges masks into one, as Keras does.

    Each may be `None`, and the `attention_mask` may have an axis of heads.
    Returns a boolean tensor, broadcastable to `(batch, num_heads,
    target_length, source_length)`, or `None`.
    """
    masks = []
    if query_mask is not None:
        masks.append(ops.expand_dims(ops.cast(query_mask, "bool"), (1, 3)))
    for mask in (value_mask, key_mask):
        if mask is not None:
            masks.append(ops.expand_dims(ops.cast(mask, "bool"), (1, 2)))
    if attention_mask is not None:
        attention_mask = ops.cast(attention_mask, "bool")
        if len(attention_mask.shape) == 3:
            attention_mask = ops.expand_dims(attention_mask, 1)
        masks.append(attention_mask)
    return functools.reduce(ops.logical_and, masks) if masks else None


def resolve_attention_axes(
    attention_axes, query_shape, value_shape, key_shape, has_order
):
    """Resolves the axes to attend over, counted from the front.

    `None` stands for all axes but the first and the last one. Raises a
    `ValueError` if the shapes or axes do not fit together, or if positions that
    have an order are on several axes.
    """
    rank = len(query_shape)
    between = range(1, rank - 1)
    axes = tuple(
        axis + rank if axis < 0 else axis
        for axis in (between if attention_axes is None else attention_axes)
    )
    others = [axis for axis in between if axis not in axes]
    problem = None
    if rank < 3 or len(value_shape) != rank or len(key_shape) != rank:
        problem = (
            "`query`, `value` and `key` must have equal ranks of at least 3."
        )
    elif not _fit(value_shape[1:-1], key_shape[1:-1]):
        problem = "`value` and `key` must be equal in all axes but the last."
    elif len(set(axes)) < len(axes) or not set(axes) <= set(between):
        problem = (
            "`attention_axes` must be distinct and must not include the first "
            "or the last axis."
        )
    elif not _fit(_pick(query_shape, others), _pick(value_shape, others)):
        problem = (
            "`query` and `value` must be equal in the axes that are not in "
            "`attention_axes`."
        )
    elif has_order and len(axes) > 1:
        problem = (
            "A causal mask, a sliding window and relative positions need a "
            "single attention axis."
        )
    if problem:
        raise ValueError(
            f"{problem} Received: query_shape={tuple(query_shape)}, "
            f"value_shape={tuple(value_shape)}, key_shape={tuple(key_shape)}, "
            f"attention_axes={attention_axes}"
        )
    return axes


def tuple_or_none(sizes: int | Sequence[int] | None) -> tuple[int, ...] | None:
    if isinstance(sizes, (int, numbers.Integral)):
        return (int(sizes),)
    return tuple(map(int, sizes)) if sizes else None


class FoldedAxes:
    """Folds inputs of higher rank to rank 3 and unfolds the outputs.

    The attention axes are moved behind the other axes, then both kinds are
    folded: `(batch, ..., features)` to `(batch * others, length, features)`.
    Masks and outputs that are `None` stay `None`.

    Args:
        attention_axes: Tuple of positive integers.
        num_heads: Number of attention heads.
        query_shape: Shape of the query, with tensors for unknown sizes.
        value_shape: Shape of the value.
    """

    def __init__(self, attention_axes, num_heads, query_shape, value_shape):
        axes = range(len(query_shape) - 1)
        others = [axis for axis in axes if axis not in attention_axes]
        self._axes = attention_axes
        self._num_axes = len(attention_axes)
        self._last_axes = tuple(axes[-self._num_axes :])
        self._unfolded_shape = _pick(query_shape, (*others, *attention_axes))
        self._weights_shape = (
            *_pick(query_shape, others),
            num_heads,
            *_pick(query_shape, attention_axes),
            *_pick(value_shape, attention_axes),
        )

    def fold(self, sequences):
        sequences = ops.moveaxis(sequences, self._axes, self._last_axes)
        *sizes, features = ops.shape(sequences)
        leading, lengths = sizes[: -self._num_axes], sizes[-self._num_axes :]
        return ops.reshape(
            sequences, (math.prod(leading), math.prod(lengths), features)
        )

    def fold_padding_mask(self, mask):
        """Folds a mask `(batch, ...)` to rank 2."""
        if mask is None:
            return None
        return ops.squeeze(self.fold(ops.expand_dims(mask, -1)), -1)

    def fold_attention_mask(self, mask):
        """Folds an attention mask, which may lack axes, to rank 4."""
        if mask is None:
            return None
        heads_axis = -2 * self._num_axes - 1
        while len(mask.shape) < len(self._weights_shape):
            mask = ops.expand_dims(mask, heads_axis)
        shape = list(self._weights_shape)
        shape[heads_axis] = mask.shape[heads_axis]
        folded_shape = (
            math.prod(shape[:heads_axis]),
            shape[heads_axis],
            math.prod(shape[heads_axis + 1 : -self._num_axes]),
            math.prod(shape[-self._num_axes :]),
        )
        return ops.reshape(ops.broadcast_to(mask, shape), folded_shape)

    def unfold(self, outputs):
        """Unfolds `(batch * others, target_length, ...)`."""
        if outputs is None:
            return None
        outputs = ops.reshape(
            outputs, (*self._unfolded_shape, *ops.shape(outputs)[2:])
        )
        return ops.moveaxis(outputs, self._last_axes, self._axes)

    def unfold_weights(self, weights):
        if weights is None:
            return None
        return ops.reshape(weights, self._weights_shape)


def _pick(shape, axes):
    return tuple(shape[axis] for axis in axes)


def _fit(sizes, other_sizes):
    """Returns `True` if all known sizes are equal."""
    return all(
        size == other or size is None or other is None
        for size, other in zip(sizes, other_sizes)
    )

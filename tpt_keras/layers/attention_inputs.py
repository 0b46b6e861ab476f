"""Masks of attention, and attention over several axes.

A mask is boolean and true where a query may attend.

Attention over several axes is folded to attention over a single one: the
attention axes are moved behind the other axes, then both kinds are folded, so
that `(batch, ..., features)` becomes `(batch * others, length, features)`.
"""

import functools
import math

from keras import ops


def merge_masks(query_mask, value_mask, key_mask, attention_mask):
    """Merges masks into one, as Keras does.

    Args:
        query_mask: Boolean `(batch, target_length)`, or None.
        value_mask: Boolean `(batch, source_length)`, or None.
        key_mask: Boolean `(batch, source_length)`, or None.
        attention_mask: Boolean `(batch, target_length, source_length)`, or of
            rank 4 with the heads as its second axis, or None.

    Returns:
        Boolean, broadcastable to `(batch, num_heads, target_length,
        source_length)`, or None.
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


def distance_mask(
    target_length, source_length, is_causal, sliding_window, start_index=0
):
    """Masks positions in the future or outside of the sliding window.

    Returns:
        Boolean `(1, target_length, source_length)`, or None if nothing is
        masked.
    """
    rows = ops.reshape(start_index + ops.arange(target_length), (1, -1, 1))
    columns = ops.reshape(ops.arange(source_length), (1, 1, -1))
    mask = ops.greater_equal(rows, columns) if is_causal else None
    if sliding_window is None:
        return mask
    is_near = ops.less(ops.abs(rows - columns), sliding_window)
    return is_near if mask is None else ops.logical_and(mask, is_near)


def mask_to_bias(mask):
    """Makes a float32 bias of logits: zero where `mask` is true, else -1e9."""
    if len(mask.shape) == 3:
        mask = ops.expand_dims(mask, 1)
    return ops.where(mask, 0.0, -1e9)


def resolve_attention_axes(attention_axes, query_shape, value_shape, key_shape):
    """Resolves the axes to attend over, counted from the front.

    `None` stands for all axes but the first and the last one. Raises a
    `ValueError` if the shapes or axes do not fit together.
    """
    rank = len(query_shape)
    received = (
        f"Received: query_shape={tuple(query_shape)}, "
        f"value_shape={tuple(value_shape)}, key_shape={tuple(key_shape)}, "
        f"attention_axes={attention_axes}"
    )
    if not _fit(value_shape[1:-1], key_shape[1:-1]):
        raise ValueError(
            f"`value` and `key` must be equal in all axes but the last. "
            f"{received}"
        )
    if rank < 3 or len(value_shape) != rank:
        raise ValueError(
            "`query`, `value` and `key` must have equal ranks of at least 3. "
            f"{received}"
        )
    if attention_axes is None:
        return tuple(range(1, rank - 1))
    axes = tuple(axis + rank if axis < 0 else axis for axis in attention_axes)
    if len(set(axes)) < len(axes) or not set(axes) <= set(range(1, rank - 1)):
        raise ValueError(
            "`attention_axes` must be distinct and must not include the first "
            f"or the last axis. {received}"
        )
    others = [axis for axis in range(1, rank - 1) if axis not in axes]
    if not _fit(
        *([s[axis] for axis in others] for s in (query_shape, value_shape))
    ):
        raise ValueError(
            "`query` and `value` must be equal in the axes that are not in "
            f"`attention_axes`. {received}"
        )
    return axes


def weights_shape(attention_axes, num_heads, query_shape, value_shape):
    """Shape `(batch, others..., num_heads, targets..., sources...)`."""
    return (
        *_pick(query_shape, _leading_axes(attention_axes, len(query_shape))),
        num_heads,
        *_pick(query_shape, attention_axes),
        *_pick(value_shape, attention_axes),
    )


class FoldedAxes:
    """Folds inputs of higher rank to rank 3 and unfolds the outputs.

    Args:
        attention_axes: Tuple of positive integers.
        num_heads: Number of attention heads.
        query_shape: Shape of the query, with tensors for unknown sizes.
        value_shape: Shape of the value.
    """

    def __init__(self, attention_axes, num_heads, query_shape, value_shape):
        rank = len(query_shape)
        self._num_axes = len(attention_axes)
        # The order of all axes but the last.
        self._order = (*_leading_axes(attention_axes, rank), *attention_axes)
        self._query_shape = query_shape
        self._weights_shape = weights_shape(
            attention_axes, num_heads, query_shape, value_shape
        )

    def fold(self, sequences):
        """Folds `(batch, ..., features)` to rank 3."""
        rank = len(sequences.shape)
        sequences = ops.transpose(sequences, (*self._order, rank - 1))
        shape = ops.shape(sequences)
        num_leading = rank - 1 - self._num_axes
        return ops.reshape(
            sequences,
            (
                math.prod(shape[:num_leading]),
                math.prod(shape[num_leading:-1]),
                shape[-1],
            ),
        )

    def fold_padding_mask(self, mask):
        """Folds a mask `(batch, ...)` to rank 2. `None` stays `None`."""
        if mask is None:
            return None
        return ops.squeeze(self.fold(ops.expand_dims(mask, -1)), -1)

    def fold_attention_mask(self, mask):
        """Folds an attention mask to rank 4. `None` stays `None`.

        The mask may lack the axes of the heads and of the others.
        """
        if mask is None:
            return None
        heads_axis = -2 * self._num_axes - 1
        while len(mask.shape) < len(self._weights_shape):
            mask = ops.expand_dims(mask, heads_axis)
        shape = list(self._weights_shape)
        shape[heads_axis] = mask.shape[heads_axis]
        targets = shape[heads_axis + 1 : heads_axis + 1 + self._num_axes]
        folded_shape = (
            math.prod(shape[:heads_axis]),
            shape[heads_axis],
            math.prod(targets),
            math.prod(shape[-self._num_axes :]),
        )
        return ops.reshape(ops.broadcast_to(mask, shape), folded_shape)

    def unfold(self, outputs):
        """Unfolds `(batch * others, target_length, ...)`."""
        num_axes = len(self._order)
        outputs = ops.reshape(
            outputs,
            (
                *_pick(self._query_shape, self._order),
                *ops.shape(outputs)[2:],
            ),
        )
        last_axes = range(num_axes, len(outputs.shape))
        inverse = sorted(range(num_axes), key=self._order.__getitem__)
        return ops.transpose(outputs, (*inverse, *last_axes))

    def unfold_weights(self, weights):
        """Unfolds attention weights to the shape `weights_shape`."""
        return ops.reshape(weights, self._weights_shape)


def _leading_axes(attention_axes, rank):
    return [axis for axis in range(rank - 1) if axis not in attention_axes]


def _pick(shape, axes):
    return tuple(shape[axis] for axis in axes)


def _fit(sizes, other_sizes):
    """Returns `True` if all known sizes are equal."""
    return len(sizes) == len(other_sizes) and all(
        size == other or size is None or other is None
        for size, other in zip(sizes, other_sizes)
    )

"""Attention masks: boolean, true where a query may attend."""

import functools

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
        source_length)`, or None if there is no mask.
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
    """Masks the positions that are too far away or in the future.

    Args:
        target_length: Number of queries.
        source_length: Number of keys.
        is_causal: Whether to mask the positions after each query.
        sliding_window: Masks positions that are not fewer steps away than
            this. `None` for no limit.
        start_index: Position of the first query among the keys.

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
    """Makes a bias for logits: zero where `mask` is true, else -1e9.

    Args:
        mask: Boolean `(batch, target_length, source_length)`, or of rank 4
            with the heads as its second axis.

    Returns:
        float32 tensor `(batch, 1 or num_heads, target_length, source_length)`.
    """
    if len(mask.shape) == 3:
        mask = ops.expand_dims(mask, 1)
    return ops.where(mask, 0.0, -1e9)

from keras import ops


def token_weights(token_ids, pad_id, sample_weight=None):
    """What every target token counts for.

    Args:
        token_ids: Tensor `(batch, length)`.
        pad_id: Token id of padding, which counts for nothing.
        sample_weight: Weights `(batch,)` or `(batch, length)`. Defaults to
            ones.

    Returns:
        Float tensor `(batch, length)`.
    """
    weights = ops.cast(ops.not_equal(token_ids, pad_id), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    if len(sample_weight.shape) == 1:
        sample_weight = ops.expand_dims(sample_weight, 1)
    return weights * sample_weight

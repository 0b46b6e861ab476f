import math

from keras import ops


def global_norm(tensors):
    """The norm of all elements of all tensors.

    Args:
        tensors: List of tensors.

    Returns:
        float32 scalar.
    """
    squares = [
        ops.sum(ops.square(ops.cast(tensor, "float32"))) for tensor in tensors
    ]
    return ops.sqrt(ops.sum(ops.stack(squares)))


def clip_by_global_norm(tensors, clip_norm, norm):
    """Tensors scaled so that their global norm is at most `clip_norm`.

    Args:
        tensors: List of tensors.
        clip_norm: The largest norm allowed.
        norm: Their `global_norm`. Where it is not finite, all becomes NaN.

    Returns:
        List of tensors.
    """
    scale = ops.where(
        ops.isfinite(norm),
        clip_norm * ops.minimum(1.0 / norm, 1.0 / clip_norm),
        math.nan,
    )
    return [tensor * ops.cast(scale, tensor.dtype) for tensor in tensors]

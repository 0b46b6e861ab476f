"""TensorFlow's tensors as messages, from the other side of a connection."""

import math

import tensorflow as tf

# What a message may hold that gRPC takes, in bytes.
_MOST_BYTES = 2**22


def parse_tensor(tensor):
    """The array in a message.

    A message may leave out values that are like the last one, and then says of
    a thousand million in ten bytes: not more than it could hold in full.

    Args:
        tensor: A `TensorProto`.

    Returns:
        An array.

    Raises:
        ValueError: If it is no tensor, or is too large.
    """
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    if min(shape, default=0) < 0:
        raise ValueError(f"its shape {shape[:9]} is none")
    # Where one dimension is 0 the others count for who loops over them.
    size = math.prod(max(1, length) for length in shape)
    num_values = sum(
        len(values)
        for field, values in tensor.ListFields()
        if field.name.endswith("_val")
    )
    repeated = max([8, *map(len, tensor.string_val[-1:])])
    if (
        not tensor.tensor_content
        and (size - num_values) * repeated > _MOST_BYTES
    ):
        raise ValueError(
            f"its shape needs more than the {_MOST_BYTES} bytes that a "
            "message may hold"
        )
    try:
        return tf.make_ndarray(tensor)
    except (KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"{tensor.dtype}: {error}") from None

import tensorflow as tf

# Rows that are encoded together.
GROUP_SIZE = 8


def encode_in_groups(encode, token_ids, lengths):
    """Encodes questions of like lengths together, without most of the padding.

    Args:
        encode: Function of token ids `(rows, length)` to tensors `(rows, ...)`,
            nested in any way. An axis whose size TensorFlow does not know has
            to be one of source positions.
        token_ids: Tensor `(batch, source_length)`, sorted by length.
        lengths: Tensor `(batch,)`, how many tokens of each row are no padding.

    Returns:
        What `encode` returns of all rows, with zeros behind the positions of a
        group.
    """
    encode = tf.function(
        encode,
        input_signature=[tf.TensorSpec((None, None), token_ids.dtype)],
        autograph=False,
    ).get_concrete_function()
    specs = tf.nest.flatten(encode.structured_outputs)
    batch_size, source_length = tf.unstack(tf.shape(token_ids))
    # One group at least: an empty batch has outputs too.
    num_groups = tf.maximum(1, -(-batch_size // GROUP_SIZE))

    def encode_group(index, arrays):
        rows = slice(index * GROUP_SIZE, (index + 1) * GROUP_SIZE)
        length = tf.maximum(tf.reduce_max(lengths[rows]), 0)
        encoded = tf.nest.flatten(encode(token_ids[rows, :length]))
        arrays = [
            array.write(index, _padded(values, spec, length, source_length))
            for array, values, spec in zip(arrays, encoded, specs)
        ]
        return index + 1, arrays

    arrays = [
        tf.TensorArray(spec.dtype, num_groups, infer_shape=False)
        for spec in specs
    ]
    _, arrays = tf.while_loop(
        lambda index, arrays: index < num_groups, encode_group, (0, arrays)
    )
    encoded = [
        tf.ensure_shape(array.concat(), spec.shape)
        for array, spec in zip(arrays, specs)
    ]
    return tf.nest.pack_sequence_as(encode.structured_outputs, encoded)


def _padded(values, spec, length, source_length):
    """Values with zeros behind the source positions."""
    axes = [
        axis for axis, size in enumerate(spec.shape) if axis and size is None
    ]
    # Of another axis the zeros would be wrong, and nobody would notice.
    checks = [
        tf.debugging.assert_equal(
            tf.shape(values)[axis],
            length,
            f"Axis {axis} of what `encode` returns is of unknown size, and is "
            "none of source positions. Let its shape be known.",
        )
        for axis in axes
    ]
    paddings = [
        (0, source_length - length if axis in axes else 0)
        for axis in range(spec.shape.rank)
    ]
    with tf.control_dependencies(checks):
        return tf.pad(values, paddings)

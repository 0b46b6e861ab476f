"""Between what is of a key and what is of a distance, without a gather.

A row is a query, a column a key, or how far a key stands behind the query. All
of the distances that `target_length` queries can have to `source_length` keys
are `target_length + source_length` columns: a row of them holds that of every
key, shifted by one from row to row, which a reshape does. Each way is the other
one's gradient: that of a slice, which TensorFlow would take, pads, and on a CPU
took three quarters of the distances' time.
"""

from keras import ops


def all_distances(target_length, source_length, start_index=0):
    """The distances that the columns stand for.

    Args:
        target_length: Number of queries.
        source_length: Number of keys.
        start_index: Position of the first query among the keys.

    Returns:
        int32 tensor `(target_length + source_length,)`: the position of a key
        less that of a query, ascending.
    """
    columns = ops.arange(target_length + source_length)
    return columns - (target_length - 1) - start_index


def distances_to_keys(values, source_length):
    """What every query has of each distance, as what it has of each key.

    Args:
        values: Tensor `(batch, num_heads, target_length, target_length +
            source_length)`.
        source_length: Number of keys.

    Returns:
        Tensor `(batch, num_heads, target_length, source_length)`.
    """

    @ops.custom_gradient
    def shift(values):
        def gradient(*args, upstream=None):
            # Each backend passes it in its own way.
            (upstream,) = args if upstream is None else (upstream,)
            return keys_to_distances(upstream)

        return _shift_to_keys(values, source_length), gradient

    return shift(values)


def keys_to_distances(values):
    """The other way round; a distance to which there is no key has zero.

    Args:
        values: Tensor `(batch, num_heads, target_length, source_length)`.

    Returns:
        Tensor `(batch, num_heads, target_length, target_length +
        source_length)`.
    """
    source_length = ops.shape(values)[3]

    @ops.custom_gradient
    def shift(values):
        def gradient(*args, upstream=None):
            (upstream,) = args if upstream is None else (upstream,)
            return distances_to_keys(upstream, source_length)

        return _shift_to_distances(values), gradient

    return shift(values)


def _shift_to_keys(values, source_length):
    batch_size, num_heads, target_length, width = ops.shape(values)
    flat = ops.reshape(values, (batch_size, num_heads, target_length * width))
    # From a row's start to where the next row's first key stands: width - 1.
    flat = flat[:, :, target_length - 1 : -1]
    shifted = ops.reshape(
        flat, (batch_size, num_heads, target_length, width - 1)
    )
    return shifted[:, :, :, :source_length]


def _shift_to_distances(values):
    batch_size, num_heads, target_length, source_length = ops.shape(values)
    width = target_length + source_length

    def zeros(*shape):
        return ops.zeros((batch_size, num_heads, *shape), values.dtype)

    # Not by `ops.pad`, which on TensorFlow's CPU is several times as slow.
    shifted = ops.concatenate(
        [values, zeros(target_length, target_length - 1)], axis=-1
    )
    flat = ops.reshape(
        shifted, (batch_size, num_heads, target_length * (width - 1))
    )
    flat = ops.concatenate([zeros(target_length - 1), flat, zeros(1)], axis=-1)
    return ops.reshape(flat, (batch_size, num_heads, target_length, width))

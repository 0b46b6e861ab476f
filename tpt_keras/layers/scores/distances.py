"""Between what is of a key and what is of a distance, without a gather.

A row is a query, a column a key, or how far a key stands behind the query. All
of the distances that `target_length` queries can have to `source_length` keys
are `target_length + source_length` columns: a row of them holds that of every
key, shifted by one from row to row, which a reshape does.
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
    batch_size, num_heads, target_length, width = ops.shape(values)
    flat = ops.reshape(values, (batch_size, num_heads, target_length * width))
    # From a row's start to where the next row's first key stands: width - 1.
    flat = flat[:, :, target_length - 1 : -1]
    shifted = ops.reshape(
        flat, (batch_size, num_heads, target_length, width - 1)
    )
    return shifted[:, :, :, :source_length]


def keys_to_distances(values):
    """The other way round; a distance to which there is no key has zero.

    Args:
        values: Tensor `(batch, num_heads, target_length, source_length)`.

    Returns:
        Tensor `(batch, num_heads, target_length, target_length +
        source_length)`.
    """
    batch_size, num_heads, target_length, source_length = ops.shape(values)
    width = target_length + source_length
    shifted = ops.pad(values, [(0, 0)] * 3 + [(0, target_length - 1)])
    flat = ops.reshape(
        shifted, (batch_size, num_heads, target_length * (width - 1))
    )
    flat = ops.pad(flat, [(0, 0)] * 2 + [(target_length - 1, 1)])
    return ops.reshape(flat, (batch_size, num_heads, target_length, width))

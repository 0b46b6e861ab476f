"""Random numbers that depend on nothing but their keys, on every backend.

Keras's own come from a seed of a whole batch. Rows leave a batch when they
have ended, and servers put strangers' questions into one: a row's numbers
must depend on that row alone.
"""

from keras import ops

# The multipliers of a 32-bit mixing function (C. Wellons, "Prospecting for
# hash functions", lowbias32), as signed integers.
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - 2**32)
_SHIFTS = (16, 15, 16)


def row_keys(token_ids, pad_id):
    """Hashes rows of tokens, whatever padding is behind them.

    Args:
        token_ids: Integer tensor `(batch, length)`.
        pad_id: Token of the padding.

    Returns:
        int32 tensor `(batch,)`.
    """
    token_ids = ops.cast(token_ids, "int32")
    places = ops.arange(ops.shape(token_ids)[1], dtype="int32")
    hashed = _mixed(_mixed(token_ids) + places)
    is_real = ops.cast(ops.not_equal(token_ids, pad_id), "int32")
    return ops.sum(hashed * is_real, axis=-1)


def gumbel_noise(seed, keys, index, count):
    """Draws noise from the standard Gumbel distribution.

    Args:
        seed: Integer.
        keys: int32 tensor `(rows,)`.
        index: Number of the draw, an integer or a scalar tensor.
        count: Number of values for each key, an integer.

    Returns:
        float32 tensor `(rows, count)`.
    """
    seed = (seed + 2**31) % 2**32 - 2**31
    keys = _mixed(_mixed(keys + seed) + ops.cast(index, "int32"))
    numbers = ops.arange(count, dtype="int32")
    bits = _mixed(ops.expand_dims(keys, -1) + _mixed(numbers + 1))
    # The middles of 2 ** 23 intervals of (0, 1), all of them exact.
    uniform = ops.cast(ops.bitwise_and(bits, 2**23 - 1), "float32")
    uniform = (uniform + 0.5) / 2.0**23
    return -ops.log(-ops.log(uniform))


def _mixed(bits):
    """Mixes the bits of int32 numbers."""
    for shift, multiplier in zip(_SHIFTS, (*_MULTIPLIERS, 1)):
        # Signed shifts copy the sign, which the mask removes.
        shifted = ops.bitwise_and(
            ops.right_shift(bits, shift), 2 ** (32 - shift) - 1
        )
        bits = ops.bitwise_xor(bits, shifted) * multiplier
    return bits

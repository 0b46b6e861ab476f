"""Positions that enter the products of queries and keys."""

from keras import ops

from tpt_keras.layers.token_and_position_embedding import position_sinusoids


def rotate(heads, positions):
    """Rotates heads by their positions (rotary positions, Su et al., 2021).

    Columns `2i` and `2i + 1` turn by `position * exp(-log(10000) * 2i / dim)`,
    so that the product of a query and a key depends on their distance.

    Args:
        heads: Tensor `(batch, length, num_heads, dim)`, with an even `dim`.
        positions: Tensor of positions `(length,)`.

    Returns:
        Tensor like `heads`.
    """
    shape, half = ops.shape(heads), heads.shape[-1] // 2
    sinusoids = position_sinusoids(positions, 2 * half)
    sinusoids = ops.reshape(ops.cast(sinusoids, heads.dtype), (-1, 1, half, 2))
    sines, cosines = sinusoids[..., :1], sinusoids[..., 1:]
    # (x, y) becomes (x cos - y sin, y cos + x sin).
    pairs = ops.reshape(heads, (*shape[:-1], half, 2))
    signed_sines = ops.concatenate([-sines, sines], axis=-1)
    pairs = pairs * cosines + ops.flip(pairs, axis=-1) * signed_sines
    return ops.reshape(pairs, shape)


def alibi_slopes(num_heads: int) -> list[float]:
    """Slopes of the heads' biases in ALiBi (Press et al., 2022).

    For a power of two, `2 ** (-8 k / num_heads)` of the heads `k = 1, 2, ...`.
    Other numbers take the slopes of the next smaller power, then every second
    one of the next larger power, as in the released code.
    """
    power = 2 ** (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8 * k / power) for k in range(1, power + 1)]
    between = [2.0 ** (-4 * k / power) for k in range(1, 2 * power, 2)]
    return slopes + between[: num_heads - power]


def alibi_biases(num_heads, target_length, source_length, start_index):
    """Biases of logits, `-slope * |distance|`, the same in both directions.

    Returns:
        float32 tensor `(num_heads, target_length, source_length)`.
    """
    rows = ops.expand_dims(
        start_index + ops.arange(target_length, dtype="int32"), 1
    )
    distances = ops.cast(
        ops.abs(rows - ops.arange(source_length, dtype="int32")), "float32"
    )
    slopes = ops.convert_to_tensor(alibi_slopes(num_heads), "float32")
    return -ops.reshape(slopes, (-1, 1, 1)) * distances

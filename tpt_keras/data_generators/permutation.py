"""Shuffling without a list: a permutation computed where it is needed."""

import hashlib
import math

import numpy as np

_ROUNDS = 4  # of two halves each


def permute(positions, count, seed):
    """Where positions go in a pseudorandom permutation of `range(count)`.

    A Feistel network. Positions are laid out in a grid, nearly a square, and
    in turns every row is rotated by a hash of its number and every column by a
    hash of its own. Each of these steps can be undone, so that no two cells
    ever meet. A position that ends in one of the few cells beyond `count` is
    sent on until it comes out before (cycle walking).

    The same on every machine and with every version of NumPy.

    Args:
        positions: Integer array, each at least 0 and less than `count`.
        count: Length of the permutation, at most `2**62`.
        seed: Tuple of integers.

    Returns:
        int64 array of the same shape.
    """
    width = np.uint64(math.isqrt(max(count - 1, 0)) + 1)
    height = np.uint64(-(-count // int(width)))
    digest = hashlib.blake2b(repr(tuple(map(int, seed))).encode()).digest()
    keys = np.frombuffer(digest, "<u8").reshape(_ROUNDS, 2)
    places = np.array(positions, dtype="uint64", order="C")
    flat = places.reshape(-1)  # a view
    walking = np.arange(flat.size)
    while walking.size:
        rows, columns = np.divmod(flat[walking], width)
        for row_key, column_key in keys:
            columns = (columns + _hash(rows ^ row_key)) % width
            rows = (rows + _hash(columns ^ column_key)) % height
        flat[walking] = rows * width + columns
        walking = walking[flat[walking] >= count]
    return places.astype("int64")


def _hash(values):
    """63 well-mixed bits of uint64 values: the end of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(
        0xBF58476D1CE4E5B9
    )
    values = (values ^ (values >> np.uint64(27))) * np.uint64(
        0x94D049BB133111EB
    )
    # One bit less, so that a sum with a small number does not overflow.
    return (values ^ (values >> np.uint64(31))) >> np.uint64(1)

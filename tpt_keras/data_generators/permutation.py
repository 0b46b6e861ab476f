"""Shuffling without a list: a permutation computed where it is needed."""

import tensorflow as tf


def permute(positions, count, seed):
    """Where positions go in a pseudorandom permutation of `range(count)`.

    Args:
        positions: Integer array, each at least 0 and less than `count`.
        count: Length of the permutation.
        seed: Pair of integers.

    Returns:
        int64 array of the same shape.
    """
    shuffled = tf.random.experimental.index_shuffle(
        tf.constant(positions, tf.int64),
        seed=tf.constant(seed, tf.int64),
        max_index=tf.constant(count - 1, tf.int64),
    )
    return shuffled.numpy()

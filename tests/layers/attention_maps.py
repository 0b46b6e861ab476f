"""Attentions of one binding with the maps of another."""

import numpy as np


def copy_maps(source, target):
    """Gives an attention the query, key, value and role maps of another."""
    for name in ("query", "key", "value", "role"):
        getattr(target, f"{name}_dense").set_weights(
            getattr(source, f"{name}_dense").get_weights()
        )


def map_of_products(kernel):
    """The output map of whole products that takes their diagonals alone.

    Args:
        kernel: That of elementwise products, `(num_heads, value_dim,
            hidden_dim)`.

    Returns:
        Array `(num_heads, value_dim ** 2, hidden_dim)`.
    """
    num_heads, value_dim, hidden_dim = kernel.shape
    wide = np.zeros((num_heads, value_dim, value_dim, hidden_dim), "float32")
    for index in range(value_dim):
        wide[:, index, index] = kernel[:, index]
    return wide.reshape(num_heads, value_dim**2, hidden_dim)

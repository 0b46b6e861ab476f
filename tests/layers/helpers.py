"""Helpers of the layers' tests."""

from unittest import mock

import keras
import numpy as np
import pytest

needs_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="reads TensorFlow's graph"
)


def copy_maps(source, target):
    """Copies the query, key, value and role maps of an attention."""
    for name in ("query", "key", "value", "role"):
        getattr(target, f"{name}_dense").set_weights(
            getattr(source, f"{name}_dense").get_weights()
        )


def map_of_products(kernel):
    """The output map of whole products that reads their diagonals alone.

    Args:
        kernel: Output map of elementwise products, `(num_heads, value_dim,
            hidden_dim)`.

    Returns:
        Array `(num_heads, value_dim ** 2, hidden_dim)`.
    """
    num_heads, value_dim, hidden_dim = kernel.shape
    wide = np.zeros((num_heads, value_dim, value_dim, hidden_dim), "float32")
    for index in range(value_dim):
        wide[:, index, index] = kernel[:, index]
    return wide.reshape(num_heads, value_dim**2, hidden_dim)


def dropout_masks(layer, *inputs):
    """Records the dropouts of a training call.

    Returns:
        List of boolean arrays, one for each dropout, true at kept elements.
    """
    masks = []
    drop = keras.layers.Dropout.call

    def record(dropout, x, training=False):
        dropped = drop(dropout, keras.ops.ones_like(x), training=training)
        masks.append(keras.ops.convert_to_numpy(dropped) != 0.0)
        return x * dropped

    with mock.patch.object(keras.layers.Dropout, "call", record):
        layer(*inputs, training=True)
    return masks


def largest_tensor(function, shape):
    """Size of the largest tensor in TensorFlow's graph of a function."""
    import tensorflow as tf

    spec = tf.TensorSpec(shape, "float32")
    graph = tf.function(function).get_concrete_function(spec).graph
    return max(
        int(np.prod(tensor.shape))
        for operation in graph.get_operations()
        for tensor in operation.outputs
        if tensor.shape.is_fully_defined()
    )

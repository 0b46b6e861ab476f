"""Helpers of the layers' tests."""

from unittest import mock

import keras
import numpy as np
import pytest

needs_tensorflow = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="reads TensorFlow's graph"
)


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

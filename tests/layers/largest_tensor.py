"""What a computation holds at a time, at least."""

import keras
import numpy as np
import pytest

needs_graph = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="looks at its graph"
)


def largest_tensor(function, shape):
    """Elements of the largest tensor in the graph of a function.

    Args:
        function: Function of a float32 tensor.
        shape: Its shape.

    Returns:
        Integer.
    """
    import tensorflow as tf

    spec = tf.TensorSpec(shape, "float32")
    graph = tf.function(function).get_concrete_function(spec).graph
    return max(
        int(np.prod(tensor.shape))
        for operation in graph.get_operations()
        for tensor in operation.outputs
        if tensor.shape.is_fully_defined()
    )

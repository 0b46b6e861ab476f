"""Compiles a function of token ids, on every backend."""

import threading

import keras
import numpy as np

# Keras layers are traced by one thread at a time.
_TRACING = threading.RLock()


def compiled(function, variables, num_inputs=1):
    """Compiles a function of token ids.

    On TensorFlow it is traced once, for every shape, but a first single row is
    computed eagerly, which takes a third of the time of tracing. On JAX it is
    compiled for each shape. PyTorch runs it eagerly.

    Args:
        function: Function of int32 tensors `(batch, length)` to a dict of
            tensors.
        variables: List of the variables that it reads.
        num_inputs: Number of its tensors.

    Returns:
        Function of int32 NumPy arrays to a dict of NumPy arrays, which threads
        may share.
    """
    if keras.backend.backend() == "tensorflow":
        function = _on_tensorflow(function, num_inputs)
    elif keras.backend.backend() == "jax":
        function = _on_jax(function, variables)
    elif keras.backend.backend() == "torch":
        import torch

        function = torch.inference_mode()(function)

    def call(*token_ids):
        found = function(*map(keras.ops.convert_to_tensor, token_ids))
        return {
            name: np.asarray(keras.ops.convert_to_numpy(values))
            for name, values in found.items()
        }

    return call


def _on_tensorflow(function, num_inputs):
    import tensorflow as tf

    specs = [tf.TensorSpec((None, None), tf.int32)] * num_inputs
    is_first = True
    traced = None

    def run(*token_ids):
        nonlocal is_first, traced
        is_eager = is_first and len(token_ids[0]) == 1
        is_first = False
        if is_eager:
            return function(*token_ids)
        if traced is None:
            with _TRACING:
                # Another thread may have traced it in the meantime.
                if traced is None:
                    traced = tf.function(
                        function, input_signature=specs, autograph=False
                    ).get_concrete_function()
        return traced(*token_ids)

    return run


def _on_jax(function, variables):
    import jax

    @jax.jit
    def stateless(values, *token_ids):
        with keras.StatelessScope(state_mapping=zip(variables, values)):
            return function(*token_ids)

    traced_shapes = set()

    def run(*token_ids):
        values = [variable.value for variable in variables]
        shapes = tuple(each.shape for each in token_ids)
        if shapes in traced_shapes:
            return stateless(values, *token_ids)
        with _TRACING:
            found = stateless(values, *token_ids)
        traced_shapes.add(shapes)
        return found

    return run

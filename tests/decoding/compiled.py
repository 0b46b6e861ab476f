"""Compiling on every backend."""

import keras


def compiled(function, *signature):
    """A function of int32 arrays, compiled: once for every size on TensorFlow.

    Args:
        function: Function of tensors.
        *signature: The shapes of its arguments, None where any size is taken.

    Returns:
        The function. On JAX, where shapes are fixed, it is compiled anew for
        every shape.
    """
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(function)
    import tensorflow as tf

    return tf.function(
        function,
        input_signature=[tf.TensorSpec(s, tf.int32) for s in signature],
    )

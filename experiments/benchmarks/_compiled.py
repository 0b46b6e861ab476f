"""Functions compiled by whichever backend runs the benchmark.

Keras is imported where it is used: what imports this module parses its flags
first, and imports TensorFlow quietly.
"""


def compiled(function, signature, model=None, xla=False):
    """Compiles a function of tensors.

    Args:
        function: Function of as many tensors as `signature` has, which returns
            one tensor.
        signature: List of pairs of shape and dtype. TensorFlow traces once for
            all sizes of a `None`, JAX once for each.
        model: Built Keras model whose variables the function reads, if any;
            they are taken as they are now.
        xla: Whether TensorFlow compiles with XLA; JAX always does.

    Returns:
        Function of tensors or arrays. It may return before the work is done.
    """
    import keras

    if keras.backend.backend() == "jax":
        return _compiled_by_jax(function, model)
    import tensorflow as tf

    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in signature]
    return tf.function(function, input_signature=specs, jit_compile=xla)


def _compiled_by_jax(function, model):
    import jax
    import keras

    variables = model.variables if model else []
    values = [variable.value for variable in variables]

    @jax.jit
    def call(values, *args):
        # As arguments: as constants they would be part of the program.
        with keras.StatelessScope(state_mapping=zip(variables, values)):
            return function(*args)

    return lambda *args: call(values, *args)


def matrix_product(size, dtype, xla=False):
    """What the machine can do: a large product, to be timed.

    Args:
        size: Rows and columns of both matrices.
        dtype: Their dtype.
        xla: See `compiled`.

    Returns:
        Function without arguments, which returns when the product is there.
    """
    import keras
    from keras import ops

    matrix = ops.cast(keras.random.normal((size, size)), dtype)
    signature = [((size, size), dtype)] * 2
    multiply = compiled(ops.matmul, signature, xla=xla)
    return lambda: float(multiply(matrix, matrix)[0, 0])

import tensorflow as tf
from tensorflow.python.framework import convert_to_constants


def frozen(function, input_signature):
    """A function whose weights are constants of its graph.

    oneDNN reorders a matrix for its processor before it multiplies: a
    constant once, and a variable, which may change, again at every product,
    which for a batch of few rows takes longer than the product.

    Args:
        function: Function of tensors to tensors, nested in any way, which
            reads no resource but variables.
        input_signature: The `tf.TensorSpec`s of its arguments.

    Returns:
        The function, traced.
    """
    traced = tf.function(
        function, input_signature=input_signature, autograph=False
    ).get_concrete_function()
    constant = convert_to_constants.convert_variables_to_constants_v2(
        traced
    )
    return lambda *arguments: tf.nest.pack_sequence_as(
        traced.structured_outputs, constant(*arguments)
    )

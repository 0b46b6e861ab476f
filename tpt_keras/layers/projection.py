import math

import keras
from keras import ops


@keras.saving.register_keras_serializable("tpt_keras")
class Projection(keras.layers.Layer):
    """An affine map from the last axes of its input to axes of any shape.

    It holds the weights of `keras.layers.EinsumDense` as Keras's own
    multi-head attention lays them out, `(hidden_dim, num_heads, key_dim)` into
    the heads and `(num_heads, key_dim, hidden_dim)` out of them, but differs
    from it in two ways:

    - It multiplies two plain matrices. An einsum over a batched input can
      become a broadcast batch product on TensorFlow, whose weight gradient is
      formed per example and then summed.
    - It initialises the matrix `(fan_in, fan_out)`. Keras counts the heads
      axis of a three-dimensional kernel as a convolution window, which makes
      Glorot's limits several times too small.

    Args:
        output_shape: Integer or tuple, the axes that replace the contracted
            ones.
        num_input_axes: How many of the input's last axes are contracted.
            Defaults to `1`.
        use_bias: Whether to add a bias. Defaults to `True`.
        kernel_initializer: Initializer of the matrix `(fan_in, fan_out)`.
        bias_initializer: Initializer of the bias.
        kernel_regularizer: Regularizer of the kernel.
        bias_regularizer: Regularizer of the bias.
        kernel_constraint: Constraint on the kernel.
        bias_constraint: Constraint on the bias.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        inputs: Tensor `(..., *contracted)`.

    Returns:
        Tensor `(..., *output_shape)`.

    Example:

    >>> heads = Projection((8, 64))
    >>> heads(keras.ops.ones((2, 10, 512))).shape
    (2, 10, 8, 64)
    """

    def __init__(
        self,
        output_shape,
        num_input_axes=1,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if isinstance(output_shape, int):
            output_shape = (output_shape,)
        self._output_shape = tuple(output_shape)
        self.num_input_axes = num_input_axes
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.supports_masking = True

    def build(self, input_shape):
        contracted = tuple(input_shape[-self.num_input_axes :])
        matrix_shape = (math.prod(contracted), math.prod(self._output_shape))

        def initialize_matrix(shape, dtype=None):
            matrix = self.kernel_initializer(matrix_shape, dtype=dtype)
            return ops.reshape(matrix, shape)

        self.kernel = self.add_weight(
            name="kernel",
            shape=contracted + self._output_shape,
            initializer=initialize_matrix,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=self._output_shape,
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.built = True

    def call(self, inputs):
        fan_in = math.prod(self.kernel.shape[: self.num_input_axes])
        fan_out = math.prod(self._output_shape)
        outputs = ops.matmul(
            ops.reshape(inputs, (-1, fan_in)),
            ops.reshape(self.kernel, (fan_in, fan_out)),
        )
        if self.bias is not None:
            outputs = ops.add(outputs, ops.reshape(self.bias, (fan_out,)))
        leading_shape = ops.shape(inputs)[: -self.num_input_axes]
        return ops.reshape(outputs, (*leading_shape, *self._output_shape))

    def compute_output_shape(self, input_shape):
        return tuple(input_shape[: -self.num_input_axes]) + self._output_shape

    def get_config(self):
        return {
            **super().get_config(),
            "output_shape": self._output_shape,
            "num_input_axes": self.num_input_axes,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "bias_initializer": keras.initializers.serialize(
                self.bias_initializer
            ),
            "kernel_regularizer": keras.regularizers.serialize(
                self.kernel_regularizer
            ),
            "bias_regularizer": keras.regularizers.serialize(
                self.bias_regularizer
            ),
            "kernel_constraint": keras.constraints.serialize(
                self.kernel_constraint
            ),
            "bias_constraint": keras.constraints.serialize(
                self.bias_constraint
            ),
        }

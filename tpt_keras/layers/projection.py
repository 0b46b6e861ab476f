import math
import string

import keras
from keras import ops


@keras.saving.register_keras_serializable("tpt_keras")
class Projection(keras.layers.EinsumDense):
    """An affine map from the last axes of its input to axes of any shape.

    A `keras.layers.EinsumDense` whose equation follows from the axes, with the
    weights that Keras's own multi-head attention has, `(hidden_dim, num_heads,
    key_dim)` into the heads and `(num_heads, key_dim, hidden_dim)` out of them.
    It differs in two ways:

    - It multiplies two plain matrices. An einsum over a batched input can
      become a broadcast batch product on TensorFlow, whose weight gradient is
      formed per example and then summed.
    - Every initializer is given the matrix `(fan_in, fan_out)`, whatever axes
      the kernel is kept with.

    LoRA and quantization are Keras's: `enable_lora(rank)` freezes the kernel
    and trains two thin matrices beside it; `quantize("int8")` and the other
    modes keep the kernel in fewer bits.

    Args:
        output_shape: Integer or tuple, the axes that replace the contracted
            ones.
        num_input_axes: How many of the input's last axes are contracted.
            Defaults to `1`.
        use_bias: Whether to add a bias. Defaults to `True`.
        kernel_initializer: Initializer of the matrix `(fan_in, fan_out)`.
        **kwargs: Further arguments of `keras.layers.EinsumDense`, such as
            `bias_initializer`, `kernel_regularizer`, `lora_rank` and `dtype`.

    Call arguments:
        inputs: Tensor `(..., *contracted)`.

    Returns:
        Tensor `(..., *output_shape)`.

    Example:

    >>> heads = Projection((8, 64))
    >>> heads(keras.ops.ones((2, 10, 512))).shape
    (2, 10, 8, 64)

    Adapters for every map of a model, whose other weights stay:

    >>> model = Transformer.from_preset("tp_transformer_tiny", num_layers=1)
    >>> for layer in model._flatten_layers(include_self=False):
    ...     layer.trainable = False
    >>> for layer in model._flatten_layers():
    ...     if isinstance(layer, Projection):
    ...         layer.trainable = True
    ...         layer.enable_lora(4)
    >>> sorted({weight.name for weight in model.trainable_weights})
    ['bias', 'lora_kernel_a', 'lora_kernel_b']
    """

    def __init__(
        self,
        output_shape,
        num_input_axes=1,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        if isinstance(output_shape, int):
            output_shape = (output_shape,)
        # For one input axis and two output axes: "ab,bcd->acd".
        letters = string.ascii_letters[1:]
        contracted = letters[:num_input_axes]
        outputs = letters[num_input_axes:][: len(output_shape)]
        super().__init__(
            f"a{contracted},{contracted}{outputs}->a{outputs}",
            output_shape,
            bias_axes=outputs if use_bias else None,
            kernel_initializer=_OfMatrix(kernel_initializer, num_input_axes),
            **kwargs,
        )
        self.num_input_axes = num_input_axes
        self.use_bias = use_bias
        self.supports_masking = True

    def build(self, input_shape):
        if isinstance(self.dtype_policy, keras.dtype_policies.DTypePolicyMap):
            # Its own policy: Keras looks up the mode of a layer in a map, but
            # not when it merges LoRA into a quantized kernel.
            self._dtype_policy = self.dtype_policy[self.path]
        contracted = tuple(input_shape[-self.num_input_axes :])
        # The equation is of inputs whose leading axes are one.
        super().build((None, *contracted))
        if self.quantization_mode is None:
            # For an optimizer that updates matrices: `training/muon.py`.
            self._kernel.matrix_shape = _matrix_shape(
                self._kernel.shape, self.num_input_axes
            )
        self.input_spec = keras.InputSpec(
            min_ndim=self.num_input_axes + 1,
            axes={
                axis - len(contracted): size
                for axis, size in enumerate(contracted)
            },
        )

    def call(self, inputs, training=None):
        kernel = self.kernel
        matrix_shape = _matrix_shape(kernel.shape, self.num_input_axes)
        outputs = ops.matmul(
            ops.reshape(inputs, (-1, matrix_shape[0])),
            ops.reshape(kernel, matrix_shape),
        )
        if self.bias is not None:
            outputs = ops.add(outputs, ops.reshape(self.bias, matrix_shape[1:]))
        return self._with_leading_axes(self.activation(outputs), inputs)

    def quantized_call(self, inputs, training=None):
        contracted = inputs.shape[-self.num_input_axes :]
        outputs = super().quantized_call(
            ops.reshape(inputs, (-1, *contracted)), training=training
        )
        return self._with_leading_axes(outputs, inputs)

    def _with_leading_axes(self, outputs, inputs):
        leading_shape = ops.shape(inputs)[: -self.num_input_axes]
        return ops.reshape(
            outputs, (*leading_shape, *self.partial_output_shape)
        )

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras's own check would refuse every subclass of `EinsumDense`.
        if type_check and type(self) is not Projection:
            raise self._not_implemented_error(self.quantize)
        super().quantize(mode, type_check=False, config=config)

    def compute_output_shape(self, input_shape):
        leading_shape = tuple(input_shape[: -self.num_input_axes])
        return leading_shape + self.partial_output_shape

    def get_config(self):
        config = super().get_config()
        # These follow from the others.
        del config["equation"], config["bias_axes"]
        return {
            **config,
            "num_input_axes": self.num_input_axes,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer.initializer
            ),
        }


class _OfMatrix(keras.initializers.Initializer):
    """Initializes a kernel as the matrix that it is, kept with more axes."""

    def __init__(self, initializer, num_input_axes):
        self.initializer = keras.initializers.get(initializer)
        self.num_input_axes = num_input_axes

    def __call__(self, shape, dtype=None):
        matrix = self.initializer(
            _matrix_shape(shape, self.num_input_axes), dtype=dtype
        )
        return ops.reshape(matrix, shape)


def _matrix_shape(kernel_shape, num_input_axes):
    """`(fan_in, fan_out)` of a kernel."""
    return (
        math.prod(kernel_shape[:num_input_axes]),
        math.prod(kernel_shape[num_input_axes:]),
    )

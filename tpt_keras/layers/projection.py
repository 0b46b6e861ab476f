import math
import string
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
from keras import ops

from tpt_keras.layers.attention_inputs import tuple_or_none
from tpt_keras.layers.base_layer import BaseLayer
from tpt_keras.layers.base_layer import Dropout


@keras.saving.register_keras_serializable("tpt_keras")
class Projection(keras.layers.EinsumDense):
    """An affine map from the last axes of its input to axes of any shape.

    A `keras.layers.EinsumDense` with the weights of Keras's multi-head
    attention: `(hidden_dim, num_heads, key_dim)` into the heads and
    `(num_heads, key_dim, hidden_dim)` out of them. It differs in two ways:

    - It multiplies two matrices. On TensorFlow, an einsum over a batched input
      can become a batched product, with a weight gradient for each example.
    - Initializers get the shape of the matrix `(fan_in, fan_out)`, whatever
      axes the kernel has.

    LoRA (`enable_lora(rank)`) and quantization (`quantize("int8")`) work as in
    Keras. Saving merges adapters into the kernel, which rounds a quantized one
    once more, and loading weights into a layer with adapters sets both matrices
    to zero, so that neither trains: call `enable_lora` on a layer whose weights
    are loaded. `tpt_keras.models.enable_lora` does this for a whole model.

    Args:
        output_shape: Integer or tuple, the axes that replace the contracted
            ones.
        num_input_axes: Number of contracted axes, the input's last ones.
            Defaults to `1`.
        use_bias: Whether to add a bias. Defaults to `True`.
        kernel_initializer: Initializer of the matrix `(fan_in, fan_out)`.
        bias_initializer: Initializer of the bias. A `FanInUniform` gets the
            kernel's `fan_in`.
        **kwargs: Further arguments of `keras.layers.EinsumDense`:
            `kernel_regularizer`, `lora_rank`, `dtype`, ...

    Call arguments:
        inputs: Tensor `(..., *contracted)`.

    Returns:
        Tensor `(..., *output_shape)`.

    Example:

    >>> heads = Projection((8, 64))
    >>> heads(keras.ops.ones((2, 10, 512))).shape
    (2, 10, 8, 64)
    """

    bias_initializer: keras.Initializer

    def __init__(
        self,
        output_shape: int | Sequence[int],
        num_input_axes: int = 1,
        use_bias: bool = True,
        kernel_initializer: str | keras.Initializer = "glorot_uniform",
        bias_initializer: str | keras.Initializer = "zeros",
        **kwargs: Any,
    ) -> None:
        output_shape = tuple_or_none(output_shape) or ()
        # For one input axis and two output axes: "ab,bcd->acd".
        letters = string.ascii_letters[1:]
        contracted = letters[:num_input_axes]
        outputs = letters[num_input_axes:][: len(output_shape)]
        super().__init__(
            f"a{contracted},{contracted}{outputs}->a{outputs}",
            output_shape,
            bias_axes=outputs if use_bias else None,
            kernel_initializer=_MatrixInitializer(
                kernel_initializer, num_input_axes
            ),
            bias_initializer=_copy(bias_initializer),
            **kwargs,
        )
        self.num_input_axes = num_input_axes
        self.use_bias = use_bias
        self.supports_masking = True

    def build(self, input_shape):
        if isinstance(self.dtype_policy, keras.dtype_policies.DTypePolicyMap):
            # Keras does not look into a map of policies when it merges LoRA
            # into a quantized kernel.
            self._dtype_policy = self.dtype_policy[self.path]
        contracted = tuple(input_shape[-self.num_input_axes :])
        if isinstance(self.bias_initializer, FanInUniform):
            self.bias_initializer = self.bias_initializer.with_fan_in(
                math.prod(contracted)
            )
        # The equation has a single leading axis.
        super().build((None, *contracted))
        if self.quantization_mode is None:
            # Optimizers that update matrices read this.
            self._kernel.matrix_shape = _matrix_shape(
                self._kernel.shape, self.num_input_axes
            )
        axes = range(-self.num_input_axes, 0)
        self.input_spec = keras.InputSpec(
            min_ndim=len(axes) + 1, axes=dict(zip(axes, contracted))
        )

    def call(self, inputs, training=None):
        kernel = self.kernel
        matrix_shape = _matrix_shape(kernel.shape, self.num_input_axes)
        matrix = ops.reshape(kernel, matrix_shape)
        outputs = ops.matmul(ops.reshape(inputs, (-1, matrix_shape[0])), matrix)
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
        sizes = list(inputs.shape[: -self.num_input_axes])
        if sizes.count(None) == 1 and 0 not in sizes:
            # A size that is inferred takes fewer ops than one that is read.
            sizes[sizes.index(None)] = -1
        else:
            sizes = ops.shape(inputs)[: -self.num_input_axes]
        return ops.reshape(outputs, (*sizes, *self.partial_output_shape))

    def quantize(self, mode=None, type_check=True, config=None):
        # Keras's check refuses every subclass of `EinsumDense`.
        super().quantize(mode, type_check=False, config=config)

    def compute_output_shape(self, input_shape):
        leading_shape = tuple(input_shape[: -self.num_input_axes])
        return leading_shape + self.partial_output_shape

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        # These follow from the other arguments.
        del config["equation"], config["bias_axes"]
        return {
            **config,
            "num_input_axes": self.num_input_axes,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer.initializer
            ),
        }


@keras.saving.register_keras_serializable("tpt_keras")
class FeedForward(BaseLayer):
    """The feed-forward layer of a cell (equation 5 of the paper).

    `FF(x) = W_g relu(W_f x + b_f) + b_g`, at each position.

    Args:
        intermediate_dim: Size of the hidden layer (the paper's d_f).
        activation: Activation of the hidden layer. Defaults to `"relu"`.
        dropout: Dropout rate of the hidden layer. Defaults to `0.0`.
        kernel_initializer: Initializer of both kernels.
        bias_initializer: Initializer of both biases.
        seed: Seed of the dropout.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        inputs: Tensor `(batch, length, hidden_dim)`.
        training: Whether to apply dropout.

    Returns:
        Tensor `(batch, length, hidden_dim)`.

    Example:

    >>> FeedForward(intermediate_dim=32)(keras.ops.ones((2, 5, 8))).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        intermediate_dim: int,
        activation: str | Callable = "relu",
        dropout: float = 0.0,
        kernel_initializer: str | keras.Initializer = "glorot_uniform",
        bias_initializer: str | keras.Initializer = "zeros",
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = seed

    def build(self, input_shape):
        hidden_shape = (*input_shape[:-1], self.intermediate_dim)
        self.intermediate_dense = self._projection(
            self.intermediate_dim, "intermediate", input_shape
        )
        self.output_dense = self._projection(
            input_shape[-1], "output", hidden_shape
        )
        self.dropout_layer = Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy
        )
        self.built = True

    def _projection(self, units, name, input_shape):
        layer = Projection(
            units,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build(input_shape)
        return layer

    def call(self, inputs, training=None):
        x = self.activation(self.intermediate_dense(inputs))
        x = self.dropout_layer(x, training=training)
        return self.output_dense(x)

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable("tpt_keras")
class FanInUniform(keras.initializers.RandomUniform):
    """Uniform within `1 / sqrt(fan_in)`, as the linear maps of PyTorch.

    Args:
        fan_in: Size of the map's input. Defaults to the first size of the
            shape. A `Projection` gives it to the initializer of its bias.
        seed: See `keras.initializers.RandomUniform`.

    Example:

    >>> kernel = FanInUniform()((100, 20))
    >>> bool(ops.max(ops.abs(kernel)) <= 0.1)
    True
    """

    def __init__(
        self, fan_in: int | None = None, seed: int | None = None
    ) -> None:
        super().__init__(seed=seed)
        self.fan_in = fan_in

    def with_fan_in(self, fan_in: int) -> Self:
        """The same initializer for a map of this input size."""
        return type(self)(self.fan_in or fan_in, self._init_seed)

    def __call__(self, shape, dtype=None):
        limit = 1.0 / math.sqrt(self.fan_in or shape[0])
        return keras.random.uniform(
            shape, -limit, limit, dtype=dtype, seed=self.seed
        )

    def get_config(self) -> dict[str, Any]:
        return {"fan_in": self.fan_in, "seed": self._init_seed}


class _MatrixInitializer(keras.initializers.Initializer):
    """Initializes a kernel with several axes as a matrix."""

    def __init__(self, initializer, num_input_axes):
        self.initializer = _copy(initializer)
        self.num_input_axes = num_input_axes

    def __call__(self, shape, dtype=None):
        matrix_shape = _matrix_shape(shape, self.num_input_axes)
        return ops.reshape(self.initializer(matrix_shape, dtype=dtype), shape)


def _copy(initializer):
    """A new initializer: an old one would sample the same values again."""
    initializer = keras.initializers.get(initializer)
    is_initializer = isinstance(initializer, keras.initializers.Initializer)
    return initializer.clone() if is_initializer else initializer


def _matrix_shape(kernel_shape, num_input_axes):
    """The `(fan_in, fan_out)` of a kernel."""
    return (
        math.prod(kernel_shape[:num_input_axes]),
        math.prod(kernel_shape[num_input_axes:]),
    )

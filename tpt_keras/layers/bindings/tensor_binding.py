from typing import Any

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.base_layer import with_gradient
from tpt_keras.layers.bindings.binding import Binding


@keras.saving.register_keras_serializable("tpt_keras")
class TensorBinding(Binding):
    """The full tensor product of filler and role (section 7 of the paper).

        output = W_o vec(filler role^T) + b_o

    The product of all heads is `value_dim` times as large as the hidden state.
    It is never whole in memory: the output map contracts it one head after the
    other, forward and backward.

    With a rank `R`, fillers and roles are mapped and then multiplied
    elementwise (appendix A.2 of the paper). `R = value_dim` includes hadamard
    binding:

        output = W_o ((filler A) * (role B)) + b_o

    Args:
        rank: Number of products for each head. Defaults to all, `value_dim`
            squared, without `A` and `B`.
        **kwargs: Keras's base layer arguments.

    The call arguments are those of `Binding`.

    Example:

    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> TensorBinding()(filler, filler).shape
    (3, 10, 2, 64)
    >>> TensorBinding(rank=5)(filler, filler).shape
    (3, 10, 2, 5)
    """

    def __init__(self, rank: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if rank is not None:
            check_positive_integer("rank", rank)
        self.rank = rank

    def build(self, filler_shape):
        super().build(filler_shape)
        if self.rank is None:
            return
        self.filler_kernel, self.role_kernel = (
            self.add_weight(
                name=name,
                shape=(self.num_heads, self.value_dim, self.rank),
                # Glorot uniform for the matrix of each head.
                initializer=keras.initializers.VarianceScaling(
                    1.0 / self.num_heads, "fan_in", "uniform"
                ),
            )
            for name in ("filler_kernel", "role_kernel")
        )

    @property
    def bound_dim(self) -> int:
        return self.value_dim**2 if self.rank is None else self.rank

    def call(self, filler, role):
        if self.rank is None:
            return _outer_product(filler, role)
        return ops.multiply(
            _map_heads(filler, self.filler_kernel),
            _map_heads(role, self.role_kernel),
        )

    def bind_and_map(self, filler, role, output_map):
        # A quantized map does not compute with its kernel.
        if self.rank is not None or output_map.quantization_mode is not None:
            return super().bind_and_map(filler, role, output_map)
        kernel = ops.convert_to_tensor(output_map.kernel)
        kernel = ops.reshape(kernel, (*kernel.shape[:2], -1))
        output = sum(
            _head_output(filler[..., head, :], role[..., head, :], kernel[head])
            for head in range(self.num_heads)
        )  # (..., hidden_dim)
        if output_map.bias is not None:
            output = ops.add(output, ops.reshape(output_map.bias, (-1,)))
        return ops.reshape(
            output,
            (*ops.shape(filler)[:-2], *output_map.partial_output_shape),
        )


def _map_heads(vectors, kernel):
    """Maps the vectors of each head by its own matrix."""
    # TensorFlow's einsum would make a product for each vector, which takes 90
    # times as long.
    by_head = ops.reshape(vectors, (-1, *vectors.shape[-2:]))
    by_head = ops.matmul(ops.swapaxes(by_head, 0, 1), kernel)
    return ops.reshape(
        ops.swapaxes(by_head, 0, 1),
        (*ops.shape(vectors)[:-1], kernel.shape[-1]),
    )


def _outer_product(filler, role):
    product = ops.multiply(
        ops.expand_dims(filler, -1), ops.expand_dims(role, -2)
    )  # (..., value_dim, value_dim)
    return ops.reshape(
        product, (*ops.shape(filler)[:-1], filler.shape[-1] ** 2)
    )


def _contract(filler, role, kernel):
    return ops.matmul(_outer_product(filler, role), kernel)


def _contract_gradient(upstream, filler, role, kernel):
    """Computes the product again: those of all heads and cells fill memory."""
    value_dim = filler.shape[-1]
    product_gradient = ops.reshape(
        ops.matmul(upstream, ops.transpose(kernel)),
        (*ops.shape(filler), value_dim),
    )  # (..., value_dim, value_dim)
    filler_gradient = ops.einsum("...fr,...r->...f", product_gradient, role)
    role_gradient = ops.einsum("...fr,...f->...r", product_gradient, filler)
    kernel_gradient = ops.matmul(
        ops.transpose(
            ops.reshape(_outer_product(filler, role), (-1, value_dim**2))
        ),
        ops.reshape(upstream, (-1, kernel.shape[-1])),
    )
    return filler_gradient, role_gradient, kernel_gradient


_head_output = with_gradient(_contract, _contract_gradient)

import math
from typing import Any

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.base_layer import BaseLayer


class Binding(BaseLayer):
    """Base class of bindings: how a head's filler is bound to its role.

    A `Binding` gets the fillers that an `AttentionMechanism` retrieved, and
    the output map of the `TPMultiHeadAttention` contracts the bound vectors.

    To add a binding, register a subclass with Keras. Its registered name or an
    instance can be given wherever a built-in name can: as `binding=` of a
    `TPMultiHeadAttention`, or, the name, of a `TransformerConfig`.

    Args:
        **kwargs: Keras's base layer arguments.

    Call arguments:
        filler: The heads' fillers `(..., num_heads, value_dim)`.
        role: The heads' roles `(..., num_heads, value_dim)`, or `None` if
            `has_role` is false.

    Returns:
        The bound vectors `(..., num_heads, bound_dim)`.
    """

    # True if the filler is bound to a role.
    has_role = True
    # True if the role map is created before the value map, as Keras's gate is.
    role_before_value = False

    def build(self, filler_shape):
        """Creates the weights for fillers `(..., num_heads, value_dim)`."""
        self.num_heads, self.value_dim = filler_shape[-2:]
        self.built = True

    @property
    def role_dim(self) -> int:
        """Size of a head's role map."""
        return self.value_dim

    @property
    def bound_dim(self) -> int:
        """Size of a head's bound vector."""
        return self.value_dim

    def role(self, mapped):
        """Makes the roles of the role map's output `(..., heads, role_dim)`."""
        return mapped

    def bind_and_map(self, filler, role, output_map):
        """Binds fillers to roles and applies the output map, a `Projection`.

        A binding whose bound vectors are large can override it.
        """
        return output_map(self(filler, role))

    def compute_output_shape(self, filler_shape):
        return (*filler_shape[:-1], self.bound_dim)


@keras.saving.register_keras_serializable("tpt_keras")
class NoBinding(Binding):
    """Standard attention: the filler alone, without a role.

    The arguments are those of `Binding`.
    """

    has_role = False

    def call(self, filler, role=None):
        return filler


@keras.saving.register_keras_serializable("tpt_keras")
class HadamardBinding(Binding):
    """The elementwise product, the diagonal of the tensor product.

    This is the TP-Transformer's binding (equation 4 of Schlag et al., 2019):

        bound = filler * role

    The arguments are those of `Binding`.

    Example:

    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> HadamardBinding()(filler, filler).shape
    (3, 10, 2, 8)
    """

    def call(self, filler, role):
        return ops.multiply(filler, role)


@keras.saving.register_keras_serializable("tpt_keras")
class GatedBinding(HadamardBinding):
    """Gated attention (Qiu et al., 2025): a role between zero and one.

    It is hadamard binding with a sigmoid:

        role = sigmoid(W_r x + b_r)
        bound = filler * role

    This is `keras.layers.MultiHeadAttention(use_gate=True)`, and its weights
    have the same order: the role map's are before those of the value map.

    Args:
        per_head: Whether a role is a single number, equal in all elements.
            Defaults to `False`.
        **kwargs: Keras's base layer arguments.

    The call arguments are those of `Binding`.

    Example:

    >>> binding = GatedBinding(per_head=True)
    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> binding.build(filler.shape)
    >>> role = binding.role(keras.random.normal((3, 10, 2, 1)))
    >>> binding(filler, role).shape
    (3, 10, 2, 8)
    """

    role_before_value = True

    def __init__(self, per_head: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.per_head = per_head

    @property
    def role_dim(self) -> int:
        return 1 if self.per_head else self.value_dim

    def role(self, mapped):
        gate = ops.sigmoid(mapped)
        if self.per_head:
            gate = ops.repeat(gate, self.value_dim, axis=-1)
        return gate


@keras.saving.register_keras_serializable("tpt_keras")
class DiscreteBinding(Binding):
    """Roles from a dictionary (TPT-Summ; Jiang et al., 2021).

    A role is a mixture of unit vectors from a learned dictionary that the
    heads share. The filler is added to its product with the role:

        role = softmax(W_r x + b_r) dictionary
        bound = filler + filler * role

    Args:
        num_roles: Number of roles in the dictionary. The paper uses 20 and 50.
            Defaults to `20`.
        **kwargs: Keras's base layer arguments.

    The call arguments are those of `Binding`.

    Example:

    >>> binding = DiscreteBinding(num_roles=5)
    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> binding.build(filler.shape)
    >>> role = binding.role(keras.random.normal((3, 10, 2, 5)))
    >>> binding(filler, role).shape
    (3, 10, 2, 8)
    """

    def __init__(self, num_roles: int = 20, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_positive_integer("num_roles", num_roles)
        self.num_roles = num_roles

    def build(self, filler_shape):
        super().build(filler_shape)
        self.dictionary = self.add_weight(
            name="dictionary",
            shape=(self.num_roles, self.value_dim),
            initializer="random_normal",
        )

    @property
    def role_dim(self) -> int:
        return self.num_roles

    def role(self, mapped):
        # The softmax and the norms are in float32 under every dtype policy.
        mixture = ops.softmax(ops.cast(mapped, "float32"), axis=-1)
        dictionary = ops.normalize(
            ops.cast(self.dictionary, "float32"), axis=-1
        )
        return ops.matmul(
            ops.cast(mixture, mapped.dtype), ops.cast(dictionary, mapped.dtype)
        )

    def call(self, filler, role):
        return ops.add(filler, ops.multiply(filler, role))


@keras.saving.register_keras_serializable("tpt_keras")
class CircularConvolutionBinding(Binding):
    """Circular convolution (holographic reduced representations; Plate, 1995).

    An element of the bound vector is the sum of a wrapped diagonal of the
    tensor product of filler and role:

        role = (W_r x + b_r) / sqrt(value_dim)
        bound[k] = sum_j filler[j] role[(k - j) mod value_dim]

    As in Plate's representations, the role's elements have a variance of about
    `1 / value_dim`, so that bound vectors are as long as fillers. The Fourier
    transforms are in float32 under mixed precision.

    The arguments are those of `Binding`.

    Example:

    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> CircularConvolutionBinding()(filler, filler).shape
    (3, 10, 2, 8)
    """

    def role(self, mapped):
        return ops.divide(mapped, math.sqrt(self.value_dim))

    def call(self, filler, role):
        dtype = keras.backend.result_type(filler.dtype, "float32")
        (a, b), (c, d) = (
            ops.rfft(ops.cast(x, dtype)) for x in (filler, role)
        )  # real and imaginary parts
        product = (
            ops.subtract(ops.multiply(a, c), ops.multiply(b, d)),
            ops.add(ops.multiply(a, d), ops.multiply(b, c)),
        )
        bound = ops.irfft(product, fft_length=self.value_dim)
        return ops.cast(bound, filler.dtype)

"""Bindings of fillers to roles; a new one is a row of `BINDINGS`."""

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.base_layer import BaseLayer
from tpt_keras.layers.base_layer import make_choice
from tpt_keras.layers.base_layer import with_gradient


class Binding(BaseLayer):
    """Base class of bindings: how a head's filler is bound to its role.

    A `Binding` gets the fillers that an `AttentionMechanism` retrieved, and
    the output map of the `TPMultiHeadAttention` contracts the bound vectors.
    Cached and uncached attention share this one place.

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

    # Is there a role?
    has_role = True

    def build(self, filler_shape):
        """Creates the weights for fillers `(..., num_heads, value_dim)`."""
        self.num_heads, self.value_dim = filler_shape[-2:]
        self.built = True

    @property
    def role_dim(self):
        """Size of a head's role map."""
        return self.value_dim

    @property
    def bound_dim(self):
        """Size of a head's bound vector."""
        return self.value_dim

    def role(self, mapped):
        """Makes the roles from the role map's output.

        Args:
            mapped: Tensor `(..., num_heads, role_dim)`.

        Returns:
            Tensor `(..., num_heads, value_dim)`.
        """
        return mapped

    def bind_and_map(self, filler, role, output_map):
        """Binds fillers to roles and applies the output map, a `Projection`.

        A binding whose bound vectors are large can override it.
        """
        return output_map(self(filler, role))

    def compute_output_shape(self, filler_shape):
        return (*filler_shape[:-1], self.bound_dim)

    def quantize(self, mode=None, type_check=True, config=None):
        """Does nothing: a binding has no map that Keras can quantize."""


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

    >>> binding = HadamardBinding()
    >>> filler = keras.random.normal((3, 10, 2, 8))
    >>> binding(filler, filler).shape
    (3, 10, 2, 8)
    """

    def call(self, filler, role):
        return ops.multiply(filler, role)


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

    def __init__(self, rank=None, **kwargs):
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
    def bound_dim(self):
        return self.value_dim**2 if self.rank is None else self.rank

    def call(self, filler, role):
        if self.rank is None:
            return _outer_product(filler, role)
        return ops.multiply(
            ops.einsum("...hv,hvr->...hr", filler, self.filler_kernel),
            ops.einsum("...hv,hvr->...hr", role, self.role_kernel),
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

    def get_config(self):
        return {**super().get_config(), "rank": self.rank}


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

    def __init__(self, num_roles=20, **kwargs):
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
    def role_dim(self):
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

    def get_config(self):
        return {**super().get_config(), "num_roles": self.num_roles}


BINDINGS = {
    "none": NoBinding,
    "hadamard": HadamardBinding,
    "tensor": TensorBinding,
    "discrete": DiscreteBinding,
}


def make_binding(binding, options=None, /, **kwargs):
    """Makes a `Binding` of a name or an instance, and a dict of options.

    See `TPMultiHeadAttention`. Raises a `UsageError` with the field at fault.
    """
    return make_choice("binding", Binding, BINDINGS, binding, options, **kwargs)


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
    of_product = ops.reshape(
        ops.matmul(upstream, ops.transpose(kernel)),
        (*ops.shape(filler), value_dim),
    )  # (..., value_dim, value_dim)
    of_filler = ops.einsum("...fr,...r->...f", of_product, role)
    of_role = ops.einsum("...fr,...f->...r", of_product, filler)
    of_kernel = ops.matmul(
        ops.transpose(
            ops.reshape(_outer_product(filler, role), (-1, value_dim**2))
        ),
        ops.reshape(upstream, (-1, kernel.shape[-1])),
    )
    return of_filler, of_role, of_kernel


_head_output = with_gradient(_contract, _contract_gradient)

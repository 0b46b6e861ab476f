import keras

from tpt_keras.layers.base_layer import BaseLayer


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


@keras.saving.register_keras_serializable("tpt_keras")
class NoBinding(Binding):
    """Standard attention: the filler alone, without a role.

    The arguments are those of `Binding`.
    """

    has_role = False

    def call(self, filler, role=None):
        return filler

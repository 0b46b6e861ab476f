import keras
from keras import ops


class Binding(keras.layers.Layer):
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

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, filler_shape):
        """Creates the weights.

        Args:
            filler_shape: Shape whose last two sizes are `num_heads` and
                `value_dim`.
        """
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
            mapped: The mapped queries `(..., num_heads, role_dim)`.

        Returns:
            Tensor `(..., num_heads, value_dim)`.
        """
        return mapped

    def bind_and_map(self, filler, role, output_map):
        """Binds fillers to roles and applies the output map.

        Args:
            filler: See the call arguments.
            role: See the call arguments.
            output_map: The `Projection` of the bound vectors.

        Returns:
            Tensor `(..., hidden_dim)`.
        """
        return output_map(self(filler, role))

    def compute_output_shape(self, filler_shape):
        return (*filler_shape[:-1], self.bound_dim)

    def quantize(self, mode=None, type_check=True, config=None):
        """Does nothing: a binding has no map that Keras can quantize."""

    def get_config(self):
        # Without this, Keras derives the config and cannot serialize `dtype`.
        return super().get_config()


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

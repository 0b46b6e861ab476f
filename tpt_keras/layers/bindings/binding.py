import keras


class Binding(keras.layers.Layer):
    """How a head's filler is bound to its role.

    The second of the three parts of an attention: it takes the filler that an
    `AttentionMechanism` gives, and the output map contracts what it gives.
    The one place where binding happens: the uncached and the cached attention
    both come through it.

    A binding of your own is a subclass that is registered with Keras. By its
    registered name it is taken wherever a built-in binding is, in
    `TPMultiHeadAttention(binding=...)` and in `TransformerConfig(binding=...)`.

    Args:
        **kwargs: Keras's base layer arguments.

    Call arguments:
        filler: What the heads retrieved, `(..., num_heads, value_dim)`.
        role: What `role` gives, `(..., num_heads, value_dim)`; `None` if
            `has_role` is false.

    Returns:
        Tensor `(..., num_heads, bound_dim)`.
    """

    # Whether there is a role at all.
    has_role = True

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, filler_shape):
        """Makes the weights.

        Args:
            filler_shape: Its last two sizes are `num_heads` and `value_dim`.
        """
        self.num_heads, self.value_dim = filler_shape[-2:]
        self.built = True

    @property
    def role_dim(self):
        """Size of what the role map gives for each head."""
        return self.value_dim

    @property
    def bound_dim(self):
        """Size of one head's bound vector, which the output map contracts."""
        return self.value_dim

    def role(self, mapped):
        """The roles.

        Args:
            mapped: The role map of the query, `(..., num_heads, role_dim)`.

        Returns:
            Tensor `(..., num_heads, value_dim)`.
        """
        return mapped

    def bind_and_map(self, filler, role, output_map):
        """Binds, and contracts with the output map.

        Args:
            filler: See the call arguments.
            role: See the call arguments.
            output_map: The `Projection` of what is bound.

        Returns:
            Tensor `(..., hidden_dim)`.
        """
        return output_map(self(filler, role))

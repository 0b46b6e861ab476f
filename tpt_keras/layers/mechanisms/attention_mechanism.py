import keras


class AttentionMechanism(keras.layers.Layer):
    """How queries meet keys: what an attention does between its affine maps.

    The first of the three parts of an attention; the second binds the filler
    that a mechanism gives (`Binding`), the third is the output map. A
    mechanism owns its weights, if it has any, and its cache: what it keeps of
    keys and values, in a layout that only it knows.

    A mechanism of your own is a subclass that is registered with Keras. By its
    registered name it is taken wherever a built-in mechanism is: `attention=`
    of a `TPMultiHeadAttention` and of a `TransformerConfig`.

    Args:
        dropout: Dropout rate of the attention weights, where there are any.
            Defaults to `0.0`.
        sliding_window: How far it sees: to positions that are fewer steps away
            than this. Defaults to all.
        seed: Seed of the dropout.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        query_heads: Tensor `(batch, target_length, num_heads, key_dim)`.
        key_heads: Tensor `(batch, source_length, num_heads, key_dim)`.
        value_heads: Tensor `(batch, source_length, num_heads, value_dim)`.
        attention_mask: Boolean, broadcastable to `(batch, num_heads,
            target_length, source_length)`, true where a query may attend.
        use_causal_mask: Whether a position sees none after itself.
        start_index: Position of the first query among the keys, an integer or
            a scalar tensor. Defaults to `0`.
        training: Whether to apply dropout.

    Returns:
        The filler `(batch, target_length, num_heads, value_dim)`, and the
        attention weights `(batch, num_heads, target_length, source_length)`
        or, if `has_weights` is false, `None`.
    """

    # Whether there are attention weights, one of each query for each key.
    has_weights = True
    # The most keys that it takes, where there is such a number.
    max_length = None
    # Size of the output, where a mechanism is the output map too: its filler
    # `(batch, target_length, num_heads, output_dim)` is each head's
    # share of it, and there is nothing to bind.
    output_dim = None
    # Whether it asks how far a query stands from a key. In cross-attention,
    # where that says nothing, dot products take its place.
    needs_positions = False

    def __init__(self, dropout=0.0, sliding_window=None, seed=None, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.dropout = dropout
        self.sliding_window = sliding_window
        self.seed = seed
        self.dropout_layer = keras.layers.Dropout(
            dropout, seed=seed, dtype=self.dtype_policy
        )

    def build(self, query_heads_shape, key_heads_shape, value_heads_shape):
        """Makes the weights.

        Args:
            query_heads_shape: Shape of the call argument, as the other two.
            key_heads_shape: Its lengths are `None`.
            value_heads_shape: Its last size is `value_dim`.
        """
        self.num_heads, self.key_dim = query_heads_shape[-2:]
        self.value_dim = value_heads_shape[-1]
        self.built = True

    def attend(
        self, query_heads, cache, attention_mask=None, index=None, training=None
    ):
        """As a call, over a cache.

        Args:
            query_heads: Tensor `(batch, target_length, num_heads, key_dim)`.
            cache: What `make_cache` or `update_cache` gave.
            attention_mask: See the call arguments.
            index: Position of the one query, where the cache is of positions
                that come one after the other; it sees none behind itself.
            training: Whether to apply dropout.

        Returns:
            What a call returns.
        """
        raise NotImplementedError

    def make_cache(self, key_heads, value_heads, padding_mask=None):
        """What all queries meet, made once.

        Args:
            key_heads: Tensor `(batch, source_length, num_heads, key_dim)`.
            value_heads: Tensor `(batch, source_length, num_heads, value_dim)`.
            padding_mask: Boolean `(batch, source_length)`, true at real
                tokens, for a mechanism that sums over them here; `attend` is
                given it again.

        Returns:
            A tuple of tensors `(batch, ...)`.
        """
        raise NotImplementedError

    def init_cache(self, batch_size, max_length):
        """A cache with room for positions that come one after the other.

        Args:
            batch_size: Number of rows, an integer or a scalar tensor.
            max_length: Most positions, an integer.

        Returns:
            A tuple of tensors `(batch, ...)`.
        """
        raise NotImplementedError

    def grow_cache(self, cache, max_length):
        """A cache of positions with room for more of them.

        Args:
            cache: What `init_cache` or the last update gave.
            max_length: Most positions, no fewer than there were, an integer
                or a scalar tensor.

        Returns:
            A tuple of tensors `(batch, ...)`.
        """
        raise NotImplementedError

    def update_cache(self, cache, key_heads, value_heads, index):
        """The cache with one more position.

        Args:
            cache: What `init_cache` or the last update gave.
            key_heads: Tensor `(batch, 1, num_heads, key_dim)`.
            value_heads: Tensor `(batch, 1, num_heads, value_dim)`.
            index: The position, an integer or a scalar tensor.

        Returns:
            A tuple of tensors of the same shapes.
        """
        raise NotImplementedError

    def compute_output_spec(self, query_heads, key_heads, *args, **kwargs):
        batch_size, target_length, num_heads, _ = query_heads.shape
        filler = keras.KerasTensor(
            (
                batch_size,
                target_length,
                num_heads,
                self.output_dim or self.value_dim,
            ),
            dtype=self.compute_dtype,
        )
        if not self.has_weights:
            return filler, None
        return filler, keras.KerasTensor(
            (batch_size, num_heads, target_length, key_heads.shape[1]),
            dtype=self.compute_dtype,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "dropout": self.dropout,
            "sliding_window": self.sliding_window,
            "seed": self.seed,
        }

from typing import Any

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.base_layer import BaseLayer
from tpt_keras.layers.base_layer import Dropout


class AttentionMechanism(BaseLayer):
    """Base class of attention mechanisms: from heads to fillers.

    A `TPMultiHeadAttention` maps its inputs to queries, keys and values of
    several heads. Its mechanism retrieves a filler for every query, its
    `Binding` binds the filler to a role, and its output map follows. A
    mechanism owns its weights, if any, and the layout of its KV cache.

    To add a mechanism, register a subclass with Keras. Its registered name or
    an instance can be given wherever a built-in name can: as `attention=` of a
    `TPMultiHeadAttention`, or, the name, of a `TransformerConfig`. It keeps its
    arguments as attributes of the same names, for `get_config`.

    Args:
        dropout: Dropout rate of the attention weights, if there are any.
            Defaults to `0.0`.
        sliding_window: Limits attention to positions that are nearer than this.
        seed: Seed of the dropout.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        query_heads: Tensor `(batch, target_length, num_heads, key_dim)`.
        key_heads: Tensor `(batch, source_length, num_heads, key_dim)`.
        value_heads: Tensor `(batch, source_length, num_heads, value_dim)`.
        attention_mask: Boolean, broadcastable to `(batch, num_heads,
            target_length, source_length)`, true where a query may attend.
        use_causal_mask: Whether to mask the positions after each query.
        start_index: Position of the first query among the keys, an integer or
            a scalar tensor. Defaults to `0`.
        training: Whether to apply dropout.
        return_weights: Whether the attention weights are needed.

    Returns:
        The filler `(batch, target_length, num_heads, value_dim)`, and the
        attention weights `(batch, num_heads, target_length, source_length)`
        or, if there are none or none are needed, `None`.

    A KV cache is a tuple of tensors `(batch, ...)`. `make_cache` makes that of
    a whole sequence. For decoding, `init_cache` makes an empty one with room
    for `max_length` positions, `grow_cache` makes more room, `update_cache`
    writes the heads of the position `index`, and `attend` reads it.
    """

    # True if each query has an attention weight for each key.
    has_attention_scores = True
    # The largest number of keys, if it is limited.
    max_length: int | None = None
    # The output's size, if the mechanism is the output map too. Its filler
    # `(batch, target_length, num_heads, output_dim)` is then each head's share
    # of the output, and nothing is bound.
    output_dim: int | None = None
    # True if it uses distances between queries and keys. Cross-attention, where
    # they mean nothing, then takes dot products instead.
    needs_positions = False
    # True if it takes the argument `positions`, as `DotProductAttention` does.
    takes_positions = False
    # True if the mechanism maps the layer's inputs by itself. The layer passes
    # them to its methods as `query` and `key`, and their shapes to `build`.
    takes_inputs = False
    # Number of kinds of heads. All kinds have the same number of heads, and
    # only the first kind has values.
    num_kinds = 1

    def __init__(
        self,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if sliding_window is not None:
            check_positive_integer("sliding_window", sliding_window)
        self.dropout = dropout
        self.sliding_window = sliding_window
        self.seed = seed
        self.dropout_layer = Dropout(
            dropout, seed=seed, dtype=self.dtype_policy
        )

    @property
    def uses_distances(self) -> bool:
        """True if positions of queries and keys are near or far."""
        return self.needs_positions or self.sliding_window is not None

    def check_layer(self, num_heads, binding):
        """Raises a `UsageError` if the mechanism does not fit its layer."""
        if num_heads % self.num_kinds:
            raise UsageError(
                f"{type(self).__name__} has {self.num_kinds} kinds of heads: "
                f"`num_heads` must be a multiple. Received: {num_heads}",
                field="num_heads",
            )
        if self.output_dim is not None and binding.has_role:
            raise UsageError(
                "An attention mechanism with an `output_dim` is the output map "
                f'too and needs binding="none". Received: {binding!r}',
                field="binding",
            )

    def build(self, query_heads_shape, key_heads_shape, value_heads_shape):
        """Creates the weights. Lengths and the batch size may be `None`."""
        self.num_heads, self.key_dim = query_heads_shape[-2:]
        self.value_dim = value_heads_shape[-1]
        self.built = True

    def attend(
        self,
        query_heads,
        cache,
        attention_mask=None,
        index=None,
        training=None,
        return_weights=True,
    ):
        """Attends over a KV cache, and returns what a call returns.

        For a cache of `update_cache`, `index` is the position of the only
        query, and later ones are masked. See the call arguments for the others.
        """
        raise NotImplementedError

    def make_cache(self, key_heads, value_heads, padding_mask=None):
        """Makes the KV cache of a whole sequence.

        A mechanism that sums over positions here needs the `padding_mask`,
        boolean `(batch, source_length)`, true at real tokens.
        """
        raise NotImplementedError

    def init_cache(self, batch_size, max_length):
        """Makes an empty KV cache for decoding."""
        raise NotImplementedError

    def grow_cache(self, cache, max_length):
        """Makes room for more positions in a KV cache."""
        raise NotImplementedError

    def update_cache(self, cache, key_heads, value_heads, index):
        """Writes the keys and values of one position to a KV cache."""
        raise NotImplementedError

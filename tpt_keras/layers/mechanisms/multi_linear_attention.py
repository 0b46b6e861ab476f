from typing import Any

import keras
from keras import ops

from tpt_keras.errors import check_positive_integer
from tpt_keras.layers.mechanisms.attention_mechanism import AttentionMechanism
from tpt_keras.layers.mechanisms.dot_product_attention import pad_positions
from tpt_keras.layers.mechanisms.dot_product_attention import write_position


@keras.saving.register_keras_serializable("tpt_keras")
class MultiLinearAttention(AttentionMechanism):
    """Multi-linear attention of the Tensorized Transformer (Ma et al., 2019).

    Queries, keys and values meet in a tensor of order three, a mean of block
    terms with diagonal cores `g`. A learned map contracts it:

        A_ijm = sum_r mean_c(g_cr) q_ir k_jr v_mr
        filler_i = sum_jm A_ijm W_jm

    There is no softmax, and there are no attention weights. The map is
    contracted with keys and values first, so that no tensor of the size
    `length ** 3` is made. With a causal mask, `j` and `m` are at most `i`
    (the published code sums over the future too).

    In the paper, the map is the attention's output map too. Give an
    `output_dim` for that. Without one, the map gives a filler to be bound and
    mapped like any other.

    The KV cache holds keys, values and their contraction so far, `(batch,
    num_heads, key_dim, output_dim or value_dim)`. That of an encoder's output
    holds the contraction alone.

    Args:
        max_length: Largest number of keys. Defaults to `162`, the longest
            question with its start and end symbols.
        num_cores: Number of block terms (the paper's h). Defaults to `1`.
        output_dim: Size of the output, to make the map the output map too.
            This needs `binding="none"`. Defaults to no output map.
        **kwargs: See `AttentionMechanism`. `sliding_window` is not supported,
            and `dropout` has no effect.

    The call arguments are those of `AttentionMechanism`. `attention_mask` must
    be the same for all queries and heads, `(batch, 1, 1, source_length)`, and
    `key_dim` and `value_dim` must be equal.

    Example:

    >>> mechanism = MultiLinearAttention(max_length=10)
    >>> heads = keras.random.normal((3, 10, 2, 8))
    >>> filler, _ = mechanism(heads, heads, heads)
    >>> filler.shape
    (3, 10, 2, 8)
    """

    has_attention_scores = False
    max_length: int

    def __init__(
        self,
        max_length: int = 162,
        num_cores: int = 1,
        output_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive_integer("max_length", max_length)
        check_positive_integer("num_cores", num_cores)
        if output_dim is not None:
            check_positive_integer("output_dim", output_dim)
        if self.sliding_window is not None:
            raise ValueError(
                "`sliding_window` is not supported by multi-linear attention. "
                f"Received: {self.sliding_window!r}"
            )
        self.max_length = max_length
        self.num_cores = num_cores
        self.output_dim = output_dim

    def build(self, query_heads_shape, key_heads_shape, value_heads_shape):
        super().build(query_heads_shape, key_heads_shape, value_heads_shape)
        if self.key_dim != self.value_dim:
            raise ValueError(
                "`key_dim` and `value_dim` must be equal in multi-linear "
                f"attention. Received: {self.key_dim} and {self.value_dim}"
            )
        self.cores = self.add_weight(
            name="cores",
            shape=(self.num_cores, self.num_heads, self.key_dim),
            initializer=keras.initializers.RandomUniform(0.0, 1.0),
        )
        # Glorot uniform for the matrix of one head, from all pairs to its
        # filler, or of all heads together, from all pairs to the output.
        fan_in, fan_out = self.max_length**2, self.value_dim
        if self.output_dim is not None:
            fan_in, fan_out = self.num_heads * fan_in, self.output_dim
        limit = (6.0 / (fan_in + fan_out)) ** 0.5
        pairs = self.max_length, self.max_length
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.num_heads, *pairs, fan_out),
            initializer=keras.initializers.RandomUniform(-limit, limit),
        )

    def call(
        self,
        query_heads,
        key_heads,
        value_heads,
        attention_mask=None,
        use_causal_mask=False,
        start_index=0,
        training=None,
        return_weights=True,
    ):
        self._check_length(key_heads.shape[1])
        attention_mask = self._source_mask(attention_mask)
        if not use_causal_mask:
            cache = self.make_cache(key_heads, value_heads, attention_mask)
            return self.attend(query_heads, cache)
        keys, values = _zero_padding(attention_mask, key_heads, value_heads)
        contracted = self._contract_until_each(keys, values)
        positions = start_index + ops.arange(
            ops.shape(query_heads)[1], dtype="int32"
        )
        contracted = ops.take(contracted, positions, axis=1)
        queries = ops.transpose(self._weigh(query_heads), (2, 1, 0, 3))
        filler = ops.sum(ops.expand_dims(queries, 2) * contracted, axis=-1)
        return ops.transpose(filler, (3, 1, 0, 2)), None

    def attend(
        self,
        query_heads,
        cache,
        attention_mask=None,
        index=None,
        training=None,
        return_weights=True,
    ):
        filler = ops.einsum(
            "bthr,bhrv->bthv", self._weigh(query_heads), cache[-1]
        )
        return filler, None

    def make_cache(self, key_heads, value_heads, padding_mask=None):
        self._check_length(key_heads.shape[1])
        keys, values = _zero_padding(padding_mask, key_heads, value_heads)
        of_values = ops.einsum("hjmv,bmhr->bhjrv", self._kernel(keys), values)
        return (ops.einsum("bjhr,bhjrv->bhrv", keys, of_values),)

    def init_cache(self, batch_size, max_length):
        self._check_length(max_length)
        positions = max_length, self.key_dim
        contracted = self.key_dim, self.output_dim or self.value_dim
        return tuple(
            ops.zeros((batch_size, self.num_heads, *shape), self.compute_dtype)
            for shape in (positions, positions, contracted)
        )

    def grow_cache(self, cache, max_length):
        *positions, contracted = cache
        return *(pad_positions(x, max_length) for x in positions), contracted

    def update_cache(self, cache, key_heads, value_heads, index):
        keys, values, contracted = cache
        kernel = self._kernel(keys, axis=2)
        values = write_position(values, value_heads, index)
        # The new position as a key with all values, and as a value with the
        # keys before it. Later positions of the cache are zeros.
        of_values = ops.einsum(
            "hmv,bhmr->bhrv", ops.take(kernel, index, axis=1), values
        )
        of_keys = ops.einsum(
            "hjv,bhjr->bhrv", ops.take(kernel, index, axis=2), keys
        )
        # Not in place, which would change the cache that it was given.
        contracted = (
            contracted
            + ops.einsum("bthr,bhrv->bhrv", key_heads, of_values)
            + ops.einsum("bthr,bhrv->bhrv", value_heads, of_keys)
        )
        return write_position(keys, key_heads, index), values, contracted

    def _contract_until_each(self, keys, values):
        """The map contracted with keys and values up to each position.

        The axes `(num_heads, length, output_dim or value_dim, batch, key_dim)`
        have the order of the products: a transpose takes as long as they do.
        """
        kernel = self._kernel(keys)
        order = ops.arange(ops.shape(keys)[1], dtype="int32")
        keys, values = (
            ops.transpose(heads, (2, 1, 0, 3)) for heads in (keys, values)
        )
        is_key_last = ops.expand_dims(order, 1) >= ops.expand_dims(order, 0)
        is_key_last = ops.cast(is_key_last, kernel.dtype)[..., None]
        # Every pair counts once, at its later position.
        of_values = ops.einsum("hjmv,hmbr->hjvbr", kernel * is_key_last, values)
        of_keys = ops.einsum(
            "hjmv,hjbr->hmvbr", kernel * (1 - is_key_last), keys
        )
        of_each = ops.expand_dims(keys, 2) * of_values
        of_each += ops.expand_dims(values, 2) * of_keys
        return ops.cumsum(of_each, axis=1)

    def _weigh(self, query_heads):
        return query_heads * ops.mean(
            ops.convert_to_tensor(self.cores, query_heads.dtype), axis=0
        )

    def _kernel(self, keys, axis=1):
        length = ops.shape(keys)[axis]
        kernel = ops.convert_to_tensor(self.kernel, keys.dtype)
        return kernel[:, :length, :length]

    def _check_length(self, length):
        if length is not None and length > self.max_length:
            raise ValueError(
                "The number of keys must be at most `max_length`, "
                f"{self.max_length}. Received: {length}"
            )

    def _source_mask(self, attention_mask):
        if attention_mask is None:
            return None
        if attention_mask.shape[1:3] != (1, 1):
            raise ValueError(
                "`attention_mask` must be (batch, 1, 1, source_length) in "
                f"multi-linear attention. Received: {attention_mask.shape}"
            )
        return ops.squeeze(attention_mask, (1, 2))


def _zero_padding(padding_mask, *heads):
    if padding_mask is None:
        return heads
    is_real = ops.expand_dims(padding_mask, (2, 3))
    return tuple(tensor * ops.cast(is_real, tensor.dtype) for tensor in heads)

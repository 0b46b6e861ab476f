import math

import keras
from keras import ops

from tpt_keras.layers.mechanisms.attention_mechanism import AttentionMechanism


@keras.saving.register_keras_serializable("tpt_keras")
class DotProductAttention(AttentionMechanism):
    """Scaled dot-product attention (equations 2 and 3 of Schlag et al., 2019).

        weights = softmax(q k^T / sqrt(key_dim))
        filler = weights v

    It has no weights. The KV cache holds keys and values with the heads first,
    `(batch, num_heads, source_length, key_dim)` and `value_dim`, so that no
    decoding step transposes them.

    Subclasses override `logits` or `retrieve` to add terms to them.

    Args:
        flash_attention: Whether to use fused attention, Keras's
            `ops.dot_product_attention`, in calls that return no weights. It
            never makes the matrix of weights. `True` is an error where the
            backend, the device or the dtype has none: Keras's needs a GPU.
            Defaults to where it was measured to be faster: on PyTorch, not in
            half precision on a CPU. `keras.config.disable_flash_attention()`
            turns this off.
        **kwargs: The arguments of `AttentionMechanism`.

    Raises:
        ValueError: If `flash_attention` meets a dropout, or a mechanism that
            has other logits than the products of queries and keys.

    Example:

    >>> mechanism = DotProductAttention()
    >>> heads = keras.random.normal((3, 10, 2, 8))
    >>> filler, weights = mechanism(heads, heads, heads)
    >>> filler.shape, weights.shape
    ((3, 10, 2, 8), (3, 2, 10, 10))
    """

    def __init__(self, flash_attention=None, **kwargs):
        super().__init__(**kwargs)
        if flash_attention and (
            self.dropout or type(self) is not DotProductAttention
        ):
            raise ValueError(
                "`flash_attention` needs plain dot products and no dropout. "
                f"Received: {type(self).__name__}, dropout={self.dropout}"
            )
        self.flash_attention = flash_attention

    def make_cache(self, key_heads, value_heads, padding_mask=None):
        return tuple(
            ops.transpose(heads, (0, 2, 1, 3))
            for heads in (key_heads, value_heads)
        )

    def init_cache(self, batch_size, max_length):
        return tuple(
            ops.zeros(
                (batch_size, self.num_heads, max_length, size),
                dtype=self.compute_dtype,
            )
            for size in (self.key_dim, self.value_dim)
        )

    def grow_cache(self, cache, max_length):
        return tuple(pad_positions(past, max_length) for past in cache)

    def update_cache(self, cache, key_heads, value_heads, index):
        return tuple(
            write_position(past, heads, index)
            for past, heads in zip(cache, (key_heads, value_heads))
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
        cache = self.make_cache(key_heads, value_heads)
        mask = self._mask(
            query_heads, cache, attention_mask, use_causal_mask, start_index
        )
        return self._attend(
            query_heads, cache, mask, start_index, training, return_weights
        )

    def attend(
        self,
        query_heads,
        cache,
        attention_mask=None,
        index=None,
        training=None,
        return_weights=True,
    ):
        is_step = index is not None
        start_index = index if is_step else 0
        mask = self._mask(
            query_heads, cache, attention_mask, is_step, start_index
        )
        return self._attend(
            query_heads, cache, mask, start_index, training, return_weights
        )

    def _attend(
        self, query_heads, cache, mask, start_index, training, return_weights
    ):
        keys, values = cache
        if not return_weights and self._is_fused(query_heads, training):
            heads_last = (ops.transpose(x, (0, 2, 1, 3)) for x in cache)
            return ops.dot_product_attention(
                query_heads,
                *heads_last,
                mask=mask,
                flash_attention=self.flash_attention,
            ), None
        # The softmax is in float32 under every dtype policy.
        logits = ops.cast(
            self.logits(query_heads, keys, start_index), "float32"
        )
        if mask is not None:
            # An addition, unlike a selection, needs no backward pass. It is
            # the operator because `ops.add` of Keras on TensorFlow takes an
            # operand with one axis for a bias of the last axis.
            logits = logits + ops.where(mask, 0.0, -1e9)
        weights = ops.cast(ops.softmax(logits, axis=-1), self.compute_dtype)
        filler = self.retrieve(
            self.dropout_layer(weights, training=training), values, start_index
        )
        return filler, weights

    def _is_fused(self, query_heads, training):
        if self.flash_attention is not None:
            return self.flash_attention
        return (
            keras.backend.backend() == "torch"
            and keras.config.is_flash_attention_enabled() is not False
            # A subclass may have other logits.
            and type(self) is DotProductAttention
            and not (training and self.dropout)
            # On a CPU, its gradient takes six times as long in half precision.
            and (self.compute_dtype == "float32" or _is_on_gpu(query_heads))
        )

    def _mask(self, query_heads, cache, mask, is_causal, start_index):
        """Adds the limits of distance to a mask, and an axis of heads."""
        near = self._distance_mask(
            ops.shape(query_heads)[1],
            ops.shape(cache[0])[2],
            is_causal,
            start_index,
        )
        if near is not None:
            mask = near if mask is None else mask & near
        if mask is not None and len(mask.shape) == 3:
            mask = ops.expand_dims(mask, 1)
        return mask

    def _distance_mask(
        self, target_length, source_length, is_causal, start_index
    ):
        """Boolean `(1, target_length, source_length)`, or None for no limit."""
        rows = ops.reshape(start_index + ops.arange(target_length), (1, -1, 1))
        columns = ops.reshape(ops.arange(source_length), (1, 1, -1))
        mask = ops.greater_equal(rows, columns) if is_causal else None
        if self.sliding_window is None:
            return mask
        is_near = ops.less(ops.abs(rows - columns), self.sliding_window)
        return is_near if mask is None else ops.logical_and(mask, is_near)

    def logits(self, query_heads, keys, start_index):
        """Matches queries with keys.

        Args:
            query_heads: Tensor `(batch, target_length, num_heads, key_dim)`.
            keys: Tensor `(batch, num_heads, source_length, key_dim)`.
            start_index: Position of the first query among the keys.

        Returns:
            Tensor `(batch, num_heads, target_length, source_length)`.
        """
        # Scaling the queries costs less than scaling the logits.
        query_heads = ops.multiply(query_heads, 1.0 / math.sqrt(self.key_dim))
        return ops.einsum("bthd,bhsd->bhts", query_heads, keys)

    def retrieve(self, weights, values, start_index):
        """Sums the values by their weights.

        Args:
            weights: Tensor `(batch, num_heads, target_length, source_length)`.
            values: Tensor `(batch, num_heads, source_length, value_dim)`.
            start_index: Position of the first query among the values.

        Returns:
            The filler `(batch, target_length, num_heads, value_dim)`.
        """
        return ops.einsum("bhts,bhsd->bthd", weights, values)

    def get_config(self):
        return {
            **super().get_config(),
            "flash_attention": self.flash_attention,
        }


def _is_on_gpu(tensor):
    device = getattr(tensor, "device", None)  # a symbolic tensor has none
    return getattr(device, "type", "cpu") != "cpu"


def write_position(cache, heads, index):
    """Writes heads `(batch, 1, num_heads, dim)` to a cache with heads first.

    On TensorFlow, `ops.slice_update` becomes an XLA op that TF Serving refuses
    by default, and a `where` copies the whole cache.
    """
    batch_size, num_heads = ops.shape(cache)[0], cache.shape[1]
    rows = ops.arange(batch_size * num_heads)
    places = ops.stack(
        [rows // num_heads, rows % num_heads, ops.full_like(rows, index)], -1
    )
    return ops.scatter_update(
        cache, places, ops.reshape(heads, (-1, heads.shape[-1]))
    )


def pad_positions(cache, max_length):
    """Pads a cache `(batch, num_heads, length, dim)` with zeros."""
    room = max_length - ops.shape(cache)[2]
    return ops.pad(cache, ((0, 0), (0, 0), (0, room), (0, 0)))

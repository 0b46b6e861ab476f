import math
from typing import Any

import keras
import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.layers.mechanisms.attention_mechanism import AttentionMechanism
from tpt_keras.layers.token_and_position_embedding import ATTENTION_POSITIONS
from tpt_keras.layers.token_and_position_embedding import position_angles


@keras.saving.register_keras_serializable("tpt_keras")
class DotProductAttention(AttentionMechanism):
    """Scaled dot-product attention (equations 2 and 3 of Schlag et al., 2019).

        weights = softmax(q k^T / sqrt(key_dim))
        filler = weights v

    It has no weights. The KV cache holds keys and values with the heads first,
    so that no decoding step transposes them.

    Subclasses override `logits` or `retrieve` to add terms to them.

    Args:
        positions: `"rotary"` rotates queries and keys by their positions (Su
            et al., 2021), and the cache holds rotated keys. A `DecoderCell`
            does not rotate in its cross-attention. A layer of your own rotates
            wherever it attends. Defaults to none.
        flash_attention: Whether to use fused attention, Keras's
            `ops.dot_product_attention`, in calls that return no weights. `True`
            is an error where there is none: Keras's needs a GPU. Defaults to
            where it was measured to be faster: on PyTorch, not in half
            precision on a CPU. `keras.config.disable_flash_attention()` turns
            this off.
        **kwargs: The arguments of `AttentionMechanism`.

    Raises:
        ValueError: If `flash_attention` meets a dropout or other logits than
            products, or `positions` a mechanism that has its own.

    Example:

    >>> mechanism = DotProductAttention()
    >>> heads = keras.random.normal((3, 10, 2, 8))
    >>> filler, weights = mechanism(heads, heads, heads)
    >>> filler.shape, weights.shape
    ((3, 10, 2, 8), (3, 2, 10, 10))
    """

    takes_positions = True

    def __init__(
        self,
        flash_attention: bool | None = None,
        positions: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if positions is not None:
            check_choice("positions", positions, ATTENTION_POSITIONS)
            if not self.takes_positions:
                raise ValueError(
                    f"{type(self).__name__} has positions of its own. "
                    f"Received: positions={positions!r}"
                )
            self.needs_positions = True
        self.positions = positions
        # A subclass may have other logits.
        self._has_plain_logits = type(self) is DotProductAttention
        if flash_attention and (self.dropout or not self._has_plain_logits):
            raise ValueError(
                "`flash_attention` needs plain dot products and no dropout. "
                f"Received: {type(self).__name__}, dropout={self.dropout}"
            )
        self.flash_attention = flash_attention

    def build(self, query_heads_shape, key_heads_shape, value_heads_shape):
        super().build(query_heads_shape, key_heads_shape, value_heads_shape)
        if self.positions == "rotary" and self.key_dim % 2:
            raise UsageError(
                "Rotary positions need an even `key_dim`. Received: "
                f"{self.key_dim}",
                field="key_dim",
            )

    def _rotate(self, heads, start_index=0):
        if self.positions != "rotary":
            return heads
        return rotate(
            heads, start_index + ops.arange(ops.shape(heads)[1], dtype="int32")
        )

    def make_cache(self, key_heads, value_heads, padding_mask=None, key=None):
        key_heads = self._rotate(key_heads)
        return tuple(
            ops.transpose(heads, (0, 2, 1, 3))
            for heads in (key_heads, value_heads)
        )

    def cache_heads(self) -> tuple[tuple[int, int], ...]:
        """Numbers and sizes of the heads that the cache holds."""
        return (
            (self.num_heads, self.key_dim),
            (self.num_heads, self.value_dim),
        )

    def init_cache(self, batch_size, max_length):
        return tuple(
            ops.zeros((batch_size, heads, max_length, size), self.compute_dtype)
            for heads, size in self.cache_heads()
        )

    def grow_cache(self, cache, max_length):
        return tuple(pad_positions(past, max_length) for past in cache)

    def update_cache(self, cache, key_heads, value_heads, index, key=None):
        key_heads = self._rotate(key_heads, index)
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
        query=None,
        key=None,
    ):
        cache = self.make_cache(key_heads, value_heads, key=key)
        mask = self._mask(
            attention_mask, query_heads, cache, use_causal_mask, start_index
        )
        return self._attend(
            query_heads,
            cache,
            mask,
            start_index,
            training,
            return_weights,
            query,
        )

    def attend(
        self,
        query_heads,
        cache,
        attention_mask=None,
        index=None,
        training=None,
        return_weights=True,
        query=None,
    ):
        is_step = index is not None
        start = index if is_step else 0
        mask = self._mask(attention_mask, query_heads, cache, is_step, start)
        return self._attend(
            query_heads, cache, mask, start, training, return_weights, query
        )

    def _attend(
        self,
        query_heads,
        cache,
        mask,
        start_index,
        training,
        return_weights,
        query,
    ):
        query_heads = self._rotate(query_heads, start_index)
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
            self.logits(query_heads, cache[0], start_index), "float32"
        )
        if mask is not None:
            # An addition, unlike a selection, needs no backward pass. It is
            # the operator because `ops.add` of Keras on TensorFlow takes an
            # operand with one axis for a bias of the last axis.
            # The dtype of `ops.where` with numbers would be `floatx`.
            is_hidden = ops.cast(ops.logical_not(mask), logits.dtype)
            logits = logits + is_hidden * -1e9
        weights = ops.cast(_softmax(logits), self.compute_dtype)
        dropped = self.dropout_layer(weights, training=training)
        return self._fillers(dropped, cache, start_index, query), weights

    def _fillers(self, weights, cache, start_index, query):
        return self.retrieve(weights, cache[1], start_index)

    def _is_fused(self, query_heads, training):
        if self.flash_attention is not None:
            return self.flash_attention
        return (
            keras.backend.backend() == "torch"
            and keras.config.is_flash_attention_enabled() is not False
            and self._has_plain_logits
            and not (training and self.dropout)
            # On a CPU, its gradient takes six times as long in half precision.
            and (self.compute_dtype == "float32" or _is_on_gpu(query_heads))
        )

    def _mask(self, mask, query_heads, cache, is_causal, start_index):
        """Adds the limits of distance to a mask, and an axis of heads."""
        rows = ops.arange(ops.shape(query_heads)[1], dtype="int32")
        rows = ops.reshape(start_index + rows, (1, -1, 1))
        columns = ops.arange(ops.shape(cache[0])[2], dtype="int32")
        limits = []
        if is_causal:
            limits.append(rows >= columns)
        if self.sliding_window is not None:
            limits.append(ops.abs(rows - columns) < self.sliding_window)
        for limit in limits:
            mask = limit if mask is None else ops.logical_and(mask, limit)
        if mask is not None and len(mask.shape) == 3:
            mask = ops.expand_dims(mask, 1)
        return mask

    def logits(self, query_heads, keys, start_index):
        """Matches queries with the keys of a cache.

        Returns a tensor `(batch, num_heads, target_length, source_length)`.
        """
        # Scaling the queries costs less than scaling the logits.
        query_heads = ops.multiply(query_heads, 1.0 / math.sqrt(self.key_dim))
        return ops.einsum("bthd,bhsd->bhts", query_heads, keys)

    def retrieve(self, weights, values, start_index):
        """Sums the values of a cache by their weights to fillers."""
        return ops.einsum("bhts,bhsd->bthd", weights, values)


def _softmax(logits):
    # Keras takes a softmax over a single key for a mistake, and warns.
    if logits.shape[-1] == 1:
        return ops.exp(logits - logits)
    return ops.softmax(logits, axis=-1)


def _is_on_gpu(tensor):
    device = getattr(tensor, "device", None)  # a symbolic tensor has none
    return getattr(device, "type", "cpu") != "cpu"


def write_position(cache, heads, index):
    """Writes heads `(batch, 1, num_heads, dim)` to a cache with heads first."""
    if keras.backend.backend() == "torch":
        # It copies the cache in any case, and this is fewer ops.
        heads = ops.transpose(heads, (0, 2, 1, 3))
        positions = ops.arange(ops.shape(cache)[2], dtype="int32")
        is_here = ops.expand_dims(ops.equal(positions, index), -1)
        return ops.where(is_here, heads, cache)
    # On TensorFlow, `ops.slice_update` would be an XLA op that TF Serving
    # refuses by default, and a `where` copies the whole cache.
    batch_size, num_heads = ops.shape(cache)[0], cache.shape[1]
    rows = ops.arange(batch_size * num_heads, dtype="int32")
    indices = ops.stack(
        [rows // num_heads, rows % num_heads, ops.full_like(rows, index)], -1
    )
    return ops.scatter_update(
        cache, indices, ops.reshape(heads, (-1, heads.shape[-1]))
    )


def pad_positions(cache, max_length):
    """Pads a cache `(batch, num_heads, length, dim)` with zeros."""
    batch_size, num_heads, length, dim = ops.shape(cache)
    # `ops.pad` is slower, most of all on PyTorch.
    zeros = ops.zeros(
        (batch_size, num_heads, max_length - length, dim), cache.dtype
    )
    return ops.concatenate([cache, zeros], axis=2)


def rotate(heads, positions):
    """Rotates heads by their positions (rotary positions, Su et al., 2021).

    Columns `2i` and `2i + 1` of `(batch, length, num_heads, dim)` turn by
    `position * exp(-log(10000) * 2i / dim)`, so that the product of a query and
    a key depends on their distance.
    """
    shape, dim = ops.shape(heads), heads.shape[-1]
    angles = ops.expand_dims(position_angles(positions, dim), 1)
    cosines = ops.cast(ops.cos(angles), heads.dtype)
    # (x, y) becomes (x cos - y sin, y cos + x sin).
    signs = np.where(np.arange(dim) % 2, 1, -1).astype("float32")
    sines = ops.cast(ops.multiply(ops.sin(angles), signs), heads.dtype)
    pairs = ops.reshape(heads, (*shape[:-1], dim // 2, 2))
    swapped = ops.reshape(ops.flip(pairs, axis=-1), shape)
    return heads * cosines + swapped * sines

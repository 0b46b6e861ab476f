import keras
from keras import ops

from tpt_keras.layers.encoder_cell import EncoderCell


@keras.saving.register_keras_serializable("tpt_keras")
class DecoderCell(EncoderCell):
    """One cell of the decoder: self-attention, cross-attention, feed-forward.

    As the released code has it. The encoder's output is attended as it is; the
    role is computed from the query's side in both attentions:

        z = LN1(x)
        x = x + attention(z, z, z), causal
        x = x + attention(LN2(x), encoder_output, encoder_output)
        x = x + FF(LN3(x))
        return LN4(x)

    The arguments are those of `EncoderCell`.

    For decoding one token after the other the cell takes the keys and values
    of earlier tokens from a cache, a pair of tensors
    `(batch, num_heads, max_length, key_dim)`, and those of the encoder's output
    from another, made once by `cross_attention_keys_and_values`.

    Call arguments:
        decoder_sequence: Tensor `(batch, target_length, hidden_dim)`.
        encoder_sequence: The encoder's output `(batch, source_length,
            hidden_dim)`; may be `None` where `cross_attention_cache` is given.
        decoder_padding_mask: Boolean `(batch, target_length)`, true at real
            tokens.
        encoder_padding_mask: Boolean `(batch, source_length)`.
        self_attention_cache: Pair of keys and values `(batch, num_heads,
            max_length, key_dim)` of the tokens before this one.
        cross_attention_cache: Pair of keys and values `(batch, num_heads,
            source_length, key_dim)` of the encoder's output.
        cache_update_index: Position of the one token in `decoder_sequence`, a
            scalar; needed with `self_attention_cache`.
        training: Whether to apply dropout.

    Returns:
        Tensor `(batch, target_length, hidden_dim)`; with
        `self_attention_cache` also the updated cache.

    Example:

    >>> cell = DecoderCell(intermediate_dim=32, num_heads=2)
    >>> x, source = keras.ops.ones((3, 4, 8)), keras.ops.ones((3, 10, 8))
    >>> cell(x, source).shape
    (3, 4, 8)
    """

    def build(self, decoder_sequence_shape, encoder_sequence_shape=None):
        self.hidden_dim = decoder_sequence_shape[-1]
        self.self_attention_layer_norm = self._layer_norm("self_attention_norm")
        self.self_attention = self._attention("self_attention")
        self.cross_attention_layer_norm = self._layer_norm(
            "cross_attention_norm"
        )
        self.cross_attention = self._attention("cross_attention")
        self._build_feed_forward()
        self.built = True

    def call(
        self,
        decoder_sequence,
        encoder_sequence=None,
        decoder_padding_mask=None,
        encoder_padding_mask=None,
        self_attention_cache=None,
        cross_attention_cache=None,
        cache_update_index=None,
        training=None,
    ):
        z = self.self_attention_layer_norm(decoder_sequence)
        if self_attention_cache is None:
            z = self.self_attention(
                z,
                z,
                attention_mask=_over_sources(decoder_padding_mask),
                use_causal_mask=True,
                training=training,
            )
        else:
            z, self_attention_cache = self._cached_self_attention(
                z, self_attention_cache, cache_update_index
            )
        x = ops.add(decoder_sequence, self.dropout_layer(z, training=training))

        z = self.cross_attention_layer_norm(x)
        mask = _over_sources(encoder_padding_mask)
        if cross_attention_cache is None:
            z = self.cross_attention(
                z, encoder_sequence, attention_mask=mask, training=training
            )
        else:
            z, _ = self.cross_attention.attend(
                z, *cross_attention_cache, mask=mask, training=training
            )
        x = ops.add(x, self.dropout_layer(z, training=training))
        x = self._apply_feed_forward(x, training)
        if self_attention_cache is None:
            return x
        return x, self_attention_cache

    def cross_attention_keys_and_values(self, encoder_sequence):
        """Keys and values of the encoder's output, for every decoding step.

        Args:
            encoder_sequence: Tensor `(batch, source_length, hidden_dim)`.

        Returns:
            A pair of tensors `(batch, num_heads, source_length, key_dim)`.
        """
        return self.cross_attention.project_keys_and_values(encoder_sequence)

    def _cached_self_attention(self, z, cache, index):
        """Attention of the token at `index` over the cache and itself."""
        cache = tuple(
            _write(past, update, index)
            for past, update in zip(
                cache, self.self_attention.project_keys_and_values(z)
            )
        )
        positions = ops.arange(cache[0].shape[2])
        is_past = ops.reshape(ops.less_equal(positions, index), (1, 1, -1))
        z, _ = self.self_attention.attend(z, *cache, mask=is_past)
        return z, cache

    def compute_output_shape(
        self, decoder_sequence_shape, encoder_sequence_shape=None
    ):
        return decoder_sequence_shape


def _over_sources(padding_mask):
    """A padding mask `(batch, length)` as `(batch, 1, length)`, or None."""
    if padding_mask is None:
        return None
    return ops.expand_dims(padding_mask, 1)


def _write(cache, update, index):
    """A cache `(batch, num_heads, length, key_dim)` with one more position.

    Not `ops.slice_update`: that becomes an XLA op on TensorFlow, which a
    default TF Serving refuses. Nor a `where`, which copies the whole cache.
    """
    batch_size, num_heads = ops.shape(cache)[0], cache.shape[1]
    rows = ops.arange(batch_size * num_heads)
    places = ops.stack(
        [rows // num_heads, rows % num_heads, ops.full_like(rows, index)], -1
    )
    return ops.scatter_update(
        cache, places, ops.reshape(update, (-1, update.shape[-1]))
    )

import keras
from keras import ops

from tpt_keras.layers.transformer_cell import TransformerCell
from tpt_keras.layers.transformer_cell import over_sources


@keras.saving.register_keras_serializable("tpt_keras")
class DecoderCell(TransformerCell):
    """One cell of the decoder: self-attention, cross-attention, feed-forward.

    As the released code has it. The encoder's output is attended as it is; the
    role is computed from the query's side in both attentions:

        z = LN1(x)
        x = x + attention(z, z, z), causal
        x = x + attention(LN2(x), encoder_output, encoder_output)
        x = x + FF(LN3(x))
        return LN4(x)

    The arguments are those of `EncoderCell`. Cross-attention takes the same
    mechanism, or dot products in place of one that asks for positions: how far
    an answer's symbol stands from a question's says nothing.

    For decoding one token after the other the cell takes the keys and values
    of earlier tokens from a cache, which `init_cache` makes, and those of the
    encoder's output from another, made once by
    `cross_attention_keys_and_values`. Of dot products, both are pairs of
    tensors `(batch, num_heads, length, key_dim)`.

    Call arguments:
        decoder_sequence: Tensor `(batch, target_length, hidden_dim)`.
        encoder_sequence: The encoder's output `(batch, source_length,
            hidden_dim)`; may be `None` where `cross_attention_cache` is given.
        decoder_padding_mask: Boolean `(batch, target_length)`, true at real
            tokens.
        encoder_padding_mask: Boolean `(batch, source_length)`.
        self_attention_cache: Keys and values of the tokens before this one.
        cross_attention_cache: Keys and values of the encoder's output.
        cache_update_index: Position of the one token in `decoder_sequence`, a
            scalar; needed with `self_attention_cache`.
        training: Whether to apply dropout.
        return_attention_inputs: Whether to also return what the attentions
            were called with; without caches.

    Returns:
        Tensor `(batch, target_length, hidden_dim)`; with
        `self_attention_cache` also the updated cache; with
        `return_attention_inputs=True` also a dict of `"self_attention"` and
        `"cross_attention"`, the attributes, to the keyword arguments of their
        calls.

    Example:

    >>> cell = DecoderCell(intermediate_dim=32, num_heads=2)
    >>> x, source = keras.ops.ones((3, 4, 8)), keras.ops.ones((3, 10, 8))
    >>> cell(x, source).shape
    (3, 4, 8)
    """

    def build(self, decoder_sequence_shape, encoder_sequence_shape=None):
        self.hidden_dim = decoder_sequence_shape[-1]
        self.self_attention_layer_norm = self._layer_norm("self_attention_norm")
        self.self_attention = self._attention(
            "self_attention", self.attention, self.attention_options
        )
        self.cross_attention_layer_norm = self._layer_norm(
            "cross_attention_norm"
        )
        self.cross_attention = self._attention(
            "cross_attention",
            *(
                ("dot_product", {})
                if self.self_attention.attention.needs_positions
                else (self.attention, self.attention_options)
            ),
        )
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
        return_attention_inputs=False,
    ):
        attention_inputs = {}
        query = self.self_attention_layer_norm(decoder_sequence)
        if self_attention_cache is None:
            masks = {
                "attention_mask": over_sources(decoder_padding_mask),
                "use_causal_mask": True,
            }
            z = self.self_attention(query, query, training=training, **masks)
            attention_inputs["self_attention"] = {
                "query": query,
                "value": query,
                **masks,
            }
        else:
            # Of the token at the index, over the cache and itself.
            self_attention_cache = self.self_attention.update_cache(
                self_attention_cache, query, cache_update_index
            )
            z, _ = self.self_attention.attend(
                query, *self_attention_cache, index=cache_update_index
            )
        x = ops.add(decoder_sequence, self.dropout_layer(z, training=training))

        query = self.cross_attention_layer_norm(x)
        mask = over_sources(encoder_padding_mask)
        if cross_attention_cache is None:
            z = self.cross_attention(
                query, encoder_sequence, attention_mask=mask, training=training
            )
            attention_inputs["cross_attention"] = {
                "query": query,
                "value": encoder_sequence,
                "attention_mask": mask,
            }
        else:
            z, _ = self.cross_attention.attend(
                query, *cross_attention_cache, mask=mask, training=training
            )
        x = ops.add(x, self.dropout_layer(z, training=training))
        x = self._apply_feed_forward(x, training)
        if self_attention_cache is not None:
            return x, self_attention_cache
        return (x, attention_inputs) if return_attention_inputs else x

    def compute_output_shape(
        self, decoder_sequence_shape, encoder_sequence_shape=None
    ):
        return decoder_sequence_shape

    def init_cache(self, batch_size, max_length):
        """An empty cache for the self-attention.

        Args:
            batch_size: Number of rows, an integer or a scalar tensor.
            max_length: Most tokens to decode, an integer.

        Returns:
            A tuple of tensors `(batch, ...)`.
        """
        return self.self_attention.init_cache(batch_size, max_length)

    def cross_attention_keys_and_values(
        self, encoder_sequence, encoder_padding_mask=None
    ):
        """Keys and values of the encoder's output, for every decoding step.

        Args:
            encoder_sequence: Tensor `(batch, source_length, hidden_dim)`.
            encoder_padding_mask: Boolean `(batch, source_length)`.

        Returns:
            A tuple of tensors `(batch, ...)`.
        """
        return self.cross_attention.project_keys_and_values(
            encoder_sequence, padding_mask=encoder_padding_mask
        )

"""The cells of the encoder and the decoder."""

import random
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.layers.base_layer import BaseLayer
from tpt_keras.layers.base_layer import Dropout
from tpt_keras.layers.bindings import Binding
from tpt_keras.layers.mechanisms import AttentionMechanism
from tpt_keras.layers.projection import FeedForward
from tpt_keras.layers.tp_multi_head_attention import TPMultiHeadAttention


class TransformerCell(BaseLayer):
    """Base class of the cells, with the arguments of `EncoderCell`."""

    traced_arguments = ("return_intermediates",)

    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        binding: str | Binding = "hadamard",
        activation: str | Callable = "relu",
        dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-5,
        kernel_initializer: str | keras.Initializer = "glorot_uniform",
        attention_kernel_initializer: str
        | keras.Initializer = "glorot_uniform",
        bias_initializer: str | keras.Initializer = "zeros",
        seed: int | None = None,
        attention: str | AttentionMechanism = "dot_product",
        attention_options: dict[str, Any] | None = None,
        binding_options: dict[str, Any] | None = None,
        key_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.binding = binding
        self.attention = attention
        self.attention_options = dict(attention_options or {})
        self.binding_options = dict(binding_options or {})
        self.activation = keras.activations.get(activation)
        self.dropout = dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.attention_kernel_initializer = keras.initializers.get(
            attention_kernel_initializer
        )
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = seed

    def _layer_norm(self, name):
        layer = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )
        layer.build((None, None, self.hidden_dim))
        return layer

    def _attention(self, name, **kwargs):
        if self.key_dim is None and self.hidden_dim % self.num_heads:
            raise UsageError(
                "`num_heads` must divide the hidden size. Received: "
                f"num_heads={self.num_heads}, hidden size {self.hidden_dim}.",
                field="num_heads",
            )
        choices = {
            "binding": self.binding,
            "attention": self.attention,
            "attention_options": self.attention_options,
        }
        attention = TPMultiHeadAttention(
            self.num_heads,
            self.key_dim or self.hidden_dim // self.num_heads,
            dropout=self.dropout,
            binding_options=self.binding_options,
            kernel_initializer=self.attention_kernel_initializer,
            bias_initializer=self.bias_initializer,
            seed=self._sublayer_seed(name),
            dtype=self.dtype_policy,
            name=name,
            **choices | kwargs,
        )
        shape = (None, None, self.hidden_dim)
        attention.build(shape, shape)
        return attention

    def _build_feed_forward(self):
        self.feed_forward_layer_norm = self._layer_norm("feed_forward_norm")
        self.feed_forward = FeedForward(
            self.intermediate_dim,
            activation=self.activation,
            dropout=self.dropout,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            seed=self._sublayer_seed("feed_forward"),
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward.build((None, None, self.hidden_dim))
        self.output_layer_norm = self._layer_norm("output_norm")
        self.dropout_layer = Dropout(
            self.dropout,
            seed=self._sublayer_seed("dropout"),
            dtype=self.dtype_policy,
        )

    def _sublayer_seed(self, name):
        # Sublayers with the same seed would drop the same elements.
        if self.seed is None:
            return None
        return random.Random(f"{self.seed} {name}").getrandbits(31)

    def _attend(self, attention, query, value, intermediates, **kwargs):
        """Calls an attention, and keeps its intermediates in a dict."""
        if intermediates is None:
            return attention(query, value, **kwargs)
        output, intermediates[attention.name] = attention(
            query, value, return_intermediates=True, **kwargs
        )
        return output

    def _add(self, x, z, training):
        return ops.add(x, self.dropout_layer(z, training=training))

    def _apply_feed_forward(self, x, training):
        z = self.feed_forward_layer_norm(x)
        z = self.feed_forward(z, training=training)
        return self.output_layer_norm(self._add(x, z, training))


@keras.saving.register_keras_serializable("tpt_keras")
class EncoderCell(TransformerCell):
    """A cell of the encoder: TP-Attention, then feed-forward.

    As in the released code, the cell ends in a layer norm:

        z = LN1(x)
        x = x + attention(z, z, z)
        x = x + FF(LN2(x))
        return LN3(x)

    Args:
        intermediate_dim: Size of the feed-forward's hidden layer (d_f).
        num_heads: Number of attention heads. It must divide the hidden size
            unless `key_dim` is given.
        binding: The binding, see `TPMultiHeadAttention`.
        activation: Activation of the feed-forward, see `FeedForward`. Defaults
            to `"relu"`.
        dropout: Dropout rate of the attention weights, the feed-forward's
            hidden layer and the outputs of attention and feed-forward.
            Defaults to `0.0`.
        layer_norm_epsilon: Epsilon of the layer norms. Defaults to `1e-5`.
        kernel_initializer: Initializer of the feed-forward's kernels.
        attention_kernel_initializer: Initializer of the attention's kernels.
        bias_initializer: Initializer of all biases.
        seed: Seed of the dropouts. Each has masks of its own.
        attention: The attention mechanism, see `TPMultiHeadAttention`.
        attention_options: See `TPMultiHeadAttention`.
        binding_options: See `TPMultiHeadAttention`.
        key_dim: Size of each head's query, key and value. Defaults to the
            hidden size divided by `num_heads`.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        inputs: Tensor `(batch, length, hidden_dim)`.
        padding_mask: Boolean `(batch, length)`, true at real tokens.
        training: Whether to apply dropout.
        return_intermediates: Whether to also return a dict of the attention's,
            as `"self_attention"`; see `TPMultiHeadAttention`.

    Returns:
        Tensor `(batch, length, hidden_dim)`.

    Example:

    >>> cell = EncoderCell(intermediate_dim=32, num_heads=2)
    >>> cell(keras.random.normal((3, 10, 8))).shape
    (3, 10, 8)
    """

    def build(self, input_shape):
        self.hidden_dim = input_shape[-1]
        self.self_attention_layer_norm = self._layer_norm("self_attention_norm")
        self.self_attention = self._attention("self_attention")
        self._build_feed_forward()
        self.built = True

    def call(
        self,
        inputs,
        padding_mask=None,
        training=None,
        return_intermediates=False,
    ):
        intermediates = {} if return_intermediates else None
        z = self.self_attention_layer_norm(inputs)
        z = self._attend(
            self.self_attention,
            z,
            z,
            intermediates,
            attention_mask=_source_mask(padding_mask),
            training=training,
        )
        x = self._apply_feed_forward(self._add(inputs, z, training), training)
        return (x, intermediates) if return_intermediates else x

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable("tpt_keras")
class DecoderCell(TransformerCell):
    """A cell of the decoder: self-attention, cross-attention, feed-forward.

    As in the released code, the encoder's output is attended without a layer
    norm, and both attentions compute the role from the query:

        z = LN1(x)
        x = x + attention(z, z, z), causal
        x = x + attention(LN2(x), encoder_output, encoder_output)
        x = x + FF(LN3(x))
        return LN4(x)

    The arguments are those of `EncoderCell`. Cross-attention uses the same
    mechanism, or dot products if that mechanism needs positions: the distance
    from an answer's token to a question's means nothing.

    `decode_step` decodes token by token. It takes a KV cache of `init_cache`,
    and one of `cross_attention_keys_and_values`.

    Call arguments:
        decoder_sequence: Tensor `(batch, target_length, hidden_dim)`.
        encoder_sequence: The encoder's output `(batch, source_length,
            hidden_dim)`.
        decoder_padding_mask: Boolean `(batch, target_length)`, true at real
            tokens.
        encoder_padding_mask: Boolean `(batch, source_length)`.
        training: Whether to apply dropout.
        return_intermediates: Whether to also return a dict of the attentions',
            as `"self_attention"` and `"cross_attention"`; see
            `TPMultiHeadAttention`.

    Returns:
        Tensor `(batch, target_length, hidden_dim)`.

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
        choices = {"binding": _copy(self.binding)}
        if self.self_attention.attention.needs_positions:
            choices |= {"attention": "dot_product", "attention_options": None}
        else:
            choices |= {"attention": _copy(self.attention)}
        self.cross_attention = self._attention("cross_attention", **choices)
        # Positions of a question are not near or far from those of its answer.
        self.cross_attention.attention.sliding_window = None
        self._build_feed_forward()
        self.built = True

    def call(
        self,
        decoder_sequence,
        encoder_sequence,
        decoder_padding_mask=None,
        encoder_padding_mask=None,
        training=None,
        return_intermediates=False,
    ):
        intermediates = {} if return_intermediates else None
        z = self.self_attention_layer_norm(decoder_sequence)
        z = self._attend(
            self.self_attention,
            z,
            z,
            intermediates,
            attention_mask=_source_mask(decoder_padding_mask),
            use_causal_mask=True,
            training=training,
        )
        x = self._add(decoder_sequence, z, training)
        z = self._attend(
            self.cross_attention,
            self.cross_attention_layer_norm(x),
            encoder_sequence,
            intermediates,
            attention_mask=_source_mask(encoder_padding_mask),
            training=training,
        )
        x = self._apply_feed_forward(self._add(x, z, training), training)
        return (x, intermediates) if return_intermediates else x

    def decode_step(
        self,
        x,
        self_attention_cache,
        cross_attention_cache,
        cache_update_index,
        encoder_padding_mask=None,
    ):
        """Computes what a call computes, for one token.

        Args:
            x: Tensor `(batch, 1, hidden_dim)`.
            self_attention_cache: KV cache of the tokens before this one.
            cross_attention_cache: KV cache of the encoder's output.
            cache_update_index: Position of the token.
            encoder_padding_mask: See the call arguments.

        Returns:
            Tensor `(batch, 1, hidden_dim)` and the updated KV cache.
        """
        z = self.self_attention_layer_norm(x)
        self_attention_cache = self.self_attention.update_cache(
            self_attention_cache, z, cache_update_index
        )
        z = self.self_attention.attend(
            z, self_attention_cache, index=cache_update_index
        )
        x = self._add(x, z, training=False)
        z = self.cross_attention.attend(
            self.cross_attention_layer_norm(x),
            cross_attention_cache,
            mask=_source_mask(encoder_padding_mask),
        )
        x = self._add(x, z, training=False)
        return self._apply_feed_forward(x, training=False), self_attention_cache

    def compute_output_shape(
        self, decoder_sequence_shape, encoder_sequence_shape=None
    ):
        return decoder_sequence_shape

    def init_cache(self, batch_size, max_length):
        """Makes an empty KV cache of the self-attention."""
        return self.self_attention.attention.init_cache(batch_size, max_length)

    def grow_cache(self, cache, max_length):
        """Makes room for `max_length` tokens in a KV cache of `init_cache`."""
        return self.self_attention.attention.grow_cache(cache, max_length)

    def cross_attention_keys_and_values(
        self, encoder_sequence, encoder_padding_mask=None
    ):
        """Makes the KV cache of the encoder's output, a tuple of tensors."""
        return self.cross_attention.project_keys_and_values(
            encoder_sequence, padding_mask=encoder_padding_mask
        )


def _source_mask(padding_mask):
    return None if padding_mask is None else ops.expand_dims(padding_mask, 1)


def _copy(choice):
    if isinstance(choice, keras.layers.Layer):
        return type(choice).from_config(choice.get_config())
    return choice

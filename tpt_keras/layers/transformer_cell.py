import random

import keras
from keras import ops

from tpt_keras.layers.dtype_config import dtype_config
from tpt_keras.layers.feed_forward import FeedForward
from tpt_keras.layers.rematerializable import Rematerializable
from tpt_keras.layers.tp_multi_head_attention import TPMultiHeadAttention


class TransformerCell(Rematerializable, keras.layers.Layer):
    """What encoder and decoder cells have in common.

    Their arguments (see `EncoderCell`), the sub-layers they are made of, and
    the feed-forward part that both end with.
    """

    def __init__(
        self,
        intermediate_dim,
        num_heads,
        binding="hadamard",
        activation="relu",
        dropout=0.0,
        layer_norm_epsilon=1e-5,
        kernel_initializer="glorot_uniform",
        attention_kernel_initializer="glorot_uniform",
        attention_bias_initializer="zeros",
        seed=None,
        attention="dot_product",
        attention_options=None,
        binding_options=None,
        key_dim=None,
        **kwargs,
    ):
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
        self.attention_bias_initializer = keras.initializers.get(
            attention_bias_initializer
        )
        self.seed = seed
        self.supports_masking = True

    def _layer_norm(self, name):
        layer_norm = keras.layers.LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )
        layer_norm.build((None, None, self.hidden_dim))
        return layer_norm

    def _attention(self, name, attention, attention_options, **kwargs):
        if self.key_dim is None and self.hidden_dim % self.num_heads:
            raise ValueError(
                f"`num_heads` must divide the hidden size. Received: "
                f"num_heads={self.num_heads}, hidden size {self.hidden_dim}"
            )
        shape = (None, None, self.hidden_dim)
        attention = TPMultiHeadAttention(
            num_heads=self.num_heads,
            key_dim=self.key_dim or self.hidden_dim // self.num_heads,
            dropout=self.dropout,
            binding=self.binding,
            binding_options=self.binding_options,
            attention=attention,
            attention_options=attention_options,
            kernel_initializer=self.attention_kernel_initializer,
            bias_initializer=self.attention_bias_initializer,
            seed=self._sublayer_seed(name),
            dtype=self.dtype_policy,
            name=name,
            **kwargs,
        )
        attention.build(shape, shape)
        return attention

    def _build_feed_forward(self):
        """The part that encoder and decoder cells end with."""
        self.feed_forward_layer_norm = self._layer_norm("feed_forward_norm")
        self.feed_forward = FeedForward(
            self.intermediate_dim,
            activation=self.activation,
            dropout=self.dropout,
            kernel_initializer=self.kernel_initializer,
            seed=self._sublayer_seed("feed_forward"),
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward.build((None, None, self.hidden_dim))
        self.output_layer_norm = self._layer_norm("output_norm")
        self.dropout_layer = keras.layers.Dropout(
            self.dropout,
            seed=self._sublayer_seed("dropout"),
            dtype=self.dtype_policy,
        )

    def _sublayer_seed(self, name):
        """A seed of a sub-layer's own: with one for all they drop alike."""
        if self.seed is None:
            return None
        return random.Random(f"{self.seed} {name}").getrandbits(31)

    def _apply_feed_forward(self, x, training):
        z = self.feed_forward(
            self.feed_forward_layer_norm(x), training=training
        )
        x = ops.add(x, self.dropout_layer(z, training=training))
        return self.output_layer_norm(x)

    def compute_output_spec(self, *args, **kwargs):
        # With either of these there is more than one output.
        if any(
            kwargs.get(name)
            for name in ("return_attention_inputs", "self_attention_cache")
        ):
            return keras.Operation.compute_output_spec(self, *args, **kwargs)
        return super().compute_output_spec(*args, **kwargs)

    def get_config(self):
        return {
            **super().get_config(),
            "dtype": dtype_config(self),
            "intermediate_dim": self.intermediate_dim,
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "binding": self.binding,
            "attention": self.attention,
            "attention_options": self.attention_options,
            "binding_options": self.binding_options,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "attention_kernel_initializer": keras.initializers.serialize(
                self.attention_kernel_initializer
            ),
            "attention_bias_initializer": keras.initializers.serialize(
                self.attention_bias_initializer
            ),
            "seed": self.seed,
        }


def over_sources(padding_mask):
    """A padding mask `(batch, length)` as `(batch, 1, length)`, or None."""
    return None if padding_mask is None else ops.expand_dims(padding_mask, 1)

import random
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.layers.base_layer import BaseLayer
from tpt_keras.layers.base_layer import serialize_choice
from tpt_keras.layers.base_layer import serialize_fields
from tpt_keras.layers.bindings import Binding
from tpt_keras.layers.mechanisms import AttentionMechanism
from tpt_keras.layers.projection import FeedForward
from tpt_keras.layers.tp_multi_head_attention import TPMultiHeadAttention
from tpt_keras.typing import Tensor


class TransformerCell(BaseLayer):
    """Base class of the cells, with the arguments of `EncoderCell`."""

    traced_arguments = ("return_intermediates",)

    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        binding: str | Binding = "hadamard",
        activation: str | Callable[[Tensor], Tensor] = "relu",
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
        arguments = {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim or self.hidden_dim // self.num_heads,
            "dropout": self.dropout,
            "binding": self.binding,
            "binding_options": self.binding_options,
            "attention": self.attention,
            "attention_options": self.attention_options,
            "kernel_initializer": self.attention_kernel_initializer,
            "bias_initializer": self.bias_initializer,
            "seed": self._sublayer_seed(name),
            "dtype": self.dtype_policy,
            "name": name,
        }
        attention = TPMultiHeadAttention(**{**arguments, **kwargs})
        shape = (None, None, self.hidden_dim)
        attention.build(shape, shape)
        return attention

    def _build_feed_forward(self):
        """Builds the sublayers that all cells end with."""
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
        self.dropout_layer = keras.layers.Dropout(
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
        """Calls an attention, and keeps its intermediates in a dict, if any."""
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

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "binding": serialize_choice(self.binding),
            "binding_options": self.binding_options,
            "attention": serialize_choice(self.attention),
            "attention_options": self.attention_options,
            "dropout": self.dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "seed": self.seed,
            **serialize_fields(
                self,
                "activation",
                "kernel_initializer",
                "attention_kernel_initializer",
                "bias_initializer",
            ),
        }

from typing import Any

import keras
from keras import ops

from tpt_keras.layers.bindings import Binding
from tpt_keras.layers.cells import TransformerCell
from tpt_keras.layers.mechanisms import AttentionMechanism


@keras.saving.register_keras_serializable("tpt_keras")
class TransformerXLCell(TransformerCell):
    """A cell of Transformer-XL (Dai et al., 2019), which attends to a memory.

    The memory of earlier segments precedes the positions of this one. As in
    the paper, layer norms follow the sums, and the attention's maps have no
    biases:

        x = LN1(x + attention(x, [memory, x], [memory, x])), causal
        return LN2(x + FF(x))

    Args:
        intermediate_dim: See `EncoderCell`.
        num_heads: See `EncoderCell`.
        binding: The binding. Defaults to the paper's `"none"`.
        attention: The attention mechanism. Defaults to `"transformer_xl"`. To
            share `QueryBiases` among cells, give `TransformerXLAttention`s.
        **kwargs: The other arguments of an `EncoderCell`.

    Call arguments:
        inputs: Tensor `(batch, length, hidden_dim)`.
        memory: Tensor `(batch, memory_length, hidden_dim)`: the cell's inputs
            at earlier positions. Defaults to none.
        memory_mask: Boolean `(batch, memory_length)`, true where the memory
            holds something. Defaults to true everywhere.
        training: Whether to apply dropout.

    Returns:
        Tensor `(batch, length, hidden_dim)`.

    Example:

    >>> cell = TransformerXLCell(intermediate_dim=32, num_heads=2)
    >>> x = keras.random.normal((3, 4, 8))
    >>> cell(x, memory=keras.random.normal((3, 10, 8))).shape
    (3, 4, 8)
    """

    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        binding: str | Binding = "none",
        attention: str | AttentionMechanism = "transformer_xl",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            intermediate_dim, num_heads, binding, attention=attention, **kwargs
        )

    def build(self, inputs_shape, memory_shape=None):
        self.hidden_dim = inputs_shape[-1]
        self.self_attention = self._attention("self_attention", use_bias=False)
        self._build_feed_forward()
        self.built = True

    def call(self, inputs, memory=None, memory_mask=None, training=None):
        sources, start_index, mask = inputs, 0, None
        if memory is not None:
            sources = ops.concatenate([memory, inputs], axis=1)
            start_index = ops.shape(memory)[1]
        if memory_mask is not None:
            own = ops.ones(ops.shape(inputs)[:2], dtype="bool")
            mask = ops.concatenate([memory_mask, own], axis=1)[:, None]
        z = self.self_attention(
            inputs,
            sources,
            attention_mask=mask,
            use_causal_mask=True,
            start_index=start_index,
            training=training,
        )
        x = self.feed_forward_layer_norm(self._add(inputs, z, training))
        z = self.feed_forward(x, training=training)
        return self.output_layer_norm(self._add(x, z, training))

    def compute_output_shape(self, inputs_shape, memory_shape=None):
        return inputs_shape

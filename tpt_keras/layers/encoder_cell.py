import keras
from keras import ops

from tpt_keras.layers.transformer_cell import TransformerCell
from tpt_keras.layers.transformer_cell import over_sources


@keras.saving.register_keras_serializable("tpt_keras")
class EncoderCell(TransformerCell):
    """One cell of the encoder: TP-Attention, then feed-forward.

    As the released code has it, with a layer norm at the cell's end:

        z = LN1(x)
        x = x + attention(z, z, z)
        x = x + FF(LN2(x))
        return LN3(x)

    Args:
        intermediate_dim: Size of the feed-forward's hidden layer (the paper's
            d_f).
        num_heads: Number of attention heads; must divide the hidden size, if
            no `key_dim` is given.
        binding: How fillers are bound to roles, see `TPMultiHeadAttention`.
        activation: Activation of the feed-forward. Defaults to `"relu"`.
        dropout: Dropout rate of the attention weights, the feed-forward's
            hidden layer and both sub-layers' outputs. Defaults to `0.0`.
        layer_norm_epsilon: Epsilon of the layer norms. Defaults to `1e-5`.
        kernel_initializer: Initializer of the feed-forward's kernels.
        attention_kernel_initializer: Initializer of the attention's matrices.
        attention_bias_initializer: Initializer of the attention's biases.
        seed: Seed of the dropouts, of which each draws masks of its own.
        attention: How queries meet keys, see `TPMultiHeadAttention`.
        attention_options: What that mechanism takes, see there.
        binding_options: What that binding takes, see there.
        key_dim: Size of each head's query, key and value. Defaults to its
            share of the hidden size.
        **kwargs: Keras's base layer arguments.

    Call arguments:
        inputs: Tensor `(batch, length, hidden_dim)`.
        padding_mask: Boolean `(batch, length)`, true at real tokens.
        training: Whether to apply dropout.
        return_attention_inputs: Whether to also return what the attention was
            called with.

    Returns:
        Tensor `(batch, length, hidden_dim)`; with
        `return_attention_inputs=True` also a dict of `"self_attention"`, the
        attribute, to the keyword arguments of its call.

    Example:

    >>> cell = EncoderCell(intermediate_dim=32, num_heads=2)
    >>> cell(keras.random.normal((3, 10, 8))).shape
    (3, 10, 8)
    """

    def build(self, input_shape):
        self.hidden_dim = input_shape[-1]
        self.self_attention_layer_norm = self._layer_norm("self_attention_norm")
        self.self_attention = self._attention(
            "self_attention", self.attention, self.attention_options
        )
        self._build_feed_forward()
        self.built = True

    def call(
        self,
        inputs,
        padding_mask=None,
        training=None,
        return_attention_inputs=False,
    ):
        query = self.self_attention_layer_norm(inputs)
        masks = {"attention_mask": over_sources(padding_mask)}
        z = self.self_attention(query, query, training=training, **masks)
        x = ops.add(inputs, self.dropout_layer(z, training=training))
        x = self._apply_feed_forward(x, training)
        if not return_attention_inputs:
            return x
        return x, {"self_attention": {"query": query, "value": query, **masks}}

    def compute_output_shape(self, input_shape):
        return input_shape

from tpt_keras.errors import UsageError
from tpt_keras.layers import TPMultiHeadAttention


def check_attention(config, key_dim=None, **kwargs):
    """Refuses a configuration whose attention cannot be made.

    Args:
        config: A `ModelConfig` with `hidden_dim`, `num_heads`, `binding`,
            `attention` and `attention_options`.
        key_dim: Size of a head. Defaults to its share of `hidden_dim`.
        **kwargs: Other arguments of the `TPMultiHeadAttention`.

    Returns:
        Its mechanism, which is not built.

    Raises:
        UsageError: If it cannot be made.
    """
    if not key_dim and config.hidden_dim % config.num_heads:
        raise UsageError(
            f"num_heads must divide hidden_dim. Received: num_heads="
            f"{config.num_heads}, hidden_dim={config.hidden_dim}."
        )
    layer = TPMultiHeadAttention(
        config.num_heads,
        key_dim or config.hidden_dim // config.num_heads,
        binding=config.binding,
        attention=config.attention,
        attention_options=config.attention_options,
        # Others draw a seed, of those that the model is to get.
        kernel_initializer="zeros",
        **kwargs,
    )
    mechanism = layer.attention
    if mechanism.output_dim not in (None, config.hidden_dim):
        raise UsageError(
            f"attention_options.output_dim must be hidden_dim, "
            f"{config.hidden_dim}. Received: {mechanism.output_dim}."
        )
    return mechanism

"""Attention mechanisms. A new one is a file here and a row of `MECHANISMS`."""

from typing import Any

from tpt_keras.layers.base_layer import make_part
from tpt_keras.layers.mechanisms.attention_mechanism import AttentionMechanism
from tpt_keras.layers.mechanisms.dot_product_attention import (
    DotProductAttention,
)
from tpt_keras.layers.mechanisms.multi_linear_attention import (
    MultiLinearAttention,
)
from tpt_keras.layers.mechanisms.relational_attention import RelationalAttention
from tpt_keras.layers.mechanisms.relative_attention import RelativeAttention
from tpt_keras.layers.mechanisms.relative_attention import (
    TransformerXLAttention,
)

MECHANISMS = {
    "dot_product": DotProductAttention,
    "relative": RelativeAttention,
    "transformer_xl": TransformerXLAttention,
    "multi_linear": MultiLinearAttention,
    "relational": RelationalAttention,
}


def make_mechanism(
    attention: str | AttentionMechanism,
    options: dict[str, Any] | None = None,
    /,
    **kwargs: Any,
) -> AttentionMechanism:
    """Makes an `AttentionMechanism` of a name or an instance, and of options.

    See `TPMultiHeadAttention`. Raises a `UsageError` with the field at fault.
    """
    return make_part(
        "attention",
        AttentionMechanism,
        MECHANISMS,
        attention,
        options,
        **kwargs,
    )

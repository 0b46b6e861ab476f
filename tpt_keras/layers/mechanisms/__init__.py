"""Attention mechanisms. A new one is a file here and a row of `MECHANISMS`."""

import functools

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


# Makes an `AttentionMechanism` of a name or an instance, and of options.
make_mechanism = functools.partial(
    make_part, "attention", AttentionMechanism, MECHANISMS
)

"""How queries meet keys. A mechanism is a file here and a row of this table."""

from tpt_keras.layers.choices import make_choice
from tpt_keras.layers.mechanisms.attention_mechanism import AttentionMechanism
from tpt_keras.layers.mechanisms.dot_product_attention import (
    DotProductAttention,
)
from tpt_keras.layers.mechanisms.multi_linear_attention import (
    MultiLinearAttention,
)
from tpt_keras.layers.mechanisms.relative_attention import RelativeAttention
from tpt_keras.layers.mechanisms.transformer_xl_attention import (
    TransformerXLAttention,
)

MECHANISMS = {
    "dot_product": DotProductAttention,
    "relative": RelativeAttention,
    "transformer_xl": TransformerXLAttention,
    "multi_linear": MultiLinearAttention,
}


def make_mechanism(name, options=None, /, **kwargs):
    """A mechanism by its name.

    Args:
        name: A key of `MECHANISMS`, or the name under which a subclass of
            `AttentionMechanism` is registered with Keras (`"package>Class"`).
        options: Dict of what that mechanism alone takes, or `None`.
        **kwargs: Arguments that every `AttentionMechanism` takes.

    Returns:
        An `AttentionMechanism`.

    Raises:
        ValueError: If there is no such mechanism, or it takes no such options.
    """
    return make_choice(
        "attention mechanism",
        AttentionMechanism,
        MECHANISMS,
        name,
        options,
        **kwargs,
    )

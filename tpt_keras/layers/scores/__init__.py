"""How queries meet keys. A score is a file here and a row of this table."""

from tpt_keras.layers.choices import make_choice
from tpt_keras.layers.scores.attention_score import AttentionScore
from tpt_keras.layers.scores.dot_product_score import DotProductScore
from tpt_keras.layers.scores.multi_linear_score import MultiLinearScore
from tpt_keras.layers.scores.relative_score import RelativeScore
from tpt_keras.layers.scores.transformer_xl_score import TransformerXLScore

SCORES = {
    "dot_product": DotProductScore,
    "relative": RelativeScore,
    "transformer_xl": TransformerXLScore,
    "multi_linear": MultiLinearScore,
}


def make_score(name, options=None, /, **kwargs):
    """A score by its name.

    Args:
        name: A key of `SCORES`, or the name under which a subclass of
            `AttentionScore` is registered with Keras (`"package>Class"`).
        options: Dict of what that score alone takes, or `None`.
        **kwargs: Arguments that every `AttentionScore` takes.

    Returns:
        An `AttentionScore`.

    Raises:
        ValueError: If there is no such score, or it takes no such options.
    """
    return make_choice(
        "attention score", AttentionScore, SCORES, name, options, **kwargs
    )

"""How queries meet keys. A score is a file here and a row of this table."""

import keras

from tpt_keras.layers.scores.attention_score import AttentionScore
from tpt_keras.layers.scores.dot_product_score import DotProductScore

SCORES = {"dot_product": DotProductScore}


def score_class(name):
    """The class of a score.

    Args:
        name: A key of `SCORES`, or the name under which a subclass of
            `AttentionScore` is registered with Keras (`"package>Class"`).

    Returns:
        A subclass of `AttentionScore`.

    Raises:
        ValueError: If there is no such score.
    """
    found = SCORES.get(name) or keras.saving.get_registered_object(name)
    if isinstance(found, type) and issubclass(found, AttentionScore):
        return found
    raise ValueError(
        f"Unknown attention score {name!r}. Known scores: "
        f"{', '.join(SCORES)}; or the name of an `AttentionScore` that is "
        "registered with Keras (import its module first)."
    )

import dataclasses
import typing

from tpt_keras.models.model_config import ModelConfig
from tpt_keras.tokenizers.vocabulary import MATHEMATICS_VOCABULARY
from tpt_keras.tokenizers.vocabulary import MAX_ANSWER_LENGTH
from tpt_keras.tokenizers.vocabulary import MAX_QUESTION_LENGTH


@dataclasses.dataclass(frozen=True)
class SequenceToSequenceConfig(ModelConfig):
    """What the configurations of all models that answer have in common.

    Args:
        vocabulary: The symbols, each at its token id; see
            `CharacterTokenizer`.
        max_question_length: Longest question taken, in characters.
        max_answer_length: Longest answer given, in characters.
        **kwargs: See `ModelConfig`.

    Raises:
        UsageError: If a value is of a wrong type or makes no sense.
    """

    SIZES: typing.ClassVar = (
        "max_question_length",
        "max_answer_length",
        *ModelConfig.SIZES,
    )

    vocabulary: tuple = MATHEMATICS_VOCABULARY
    max_question_length: int = MAX_QUESTION_LENGTH
    max_answer_length: int = MAX_ANSWER_LENGTH

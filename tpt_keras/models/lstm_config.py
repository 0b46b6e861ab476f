import dataclasses
import typing

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.models.sequence_to_sequence_config import (
    SequenceToSequenceConfig,
)

ATTENTIONS = ("none", "additive")


@dataclasses.dataclass(frozen=True)
class LSTMConfig(SequenceToSequenceConfig):
    """Everything that makes one LSTM what it is.

    Args:
        hidden_dim: Size of the hidden state of the LSTM that answers.
        thinking_steps: Number of blank inputs between the question and the
            answer.
        attention: How the answer reads the question: `"none"` (a
            `SimpleLSTM`, whose one LSTM reads and answers) or `"additive"` (an
            `AttentionalLSTM`).
        encoder_dim: With attention, the size of the hidden state of the
            encoder, in each of its two directions.
        attention_dim: With attention, the size of what is read of the
            question.
        **kwargs: See `SequenceToSequenceConfig`.

    Raises:
        UsageError: If a value is of a wrong type or makes no sense.
    """

    KIND: typing.ClassVar = "lstm"
    SIZES: typing.ClassVar = (
        "hidden_dim",
        "encoder_dim",
        "attention_dim",
        *SequenceToSequenceConfig.SIZES,
    )

    hidden_dim: int = 2048
    thinking_steps: int = 16
    attention: str = "none"
    encoder_dim: int = 512
    attention_dim: int = 512

    def __post_init__(self):
        super().__post_init__()
        check_names("attention", [self.attention], ATTENTIONS)
        if self.thinking_steps < 0:
            raise UsageError(
                "thinking_steps must not be negative. Received: "
                f"{self.thinking_steps}."
            )

    def resized(self, width, more, **of_cells):
        """This variant at another size, its parts in proportion.

        Args:
            width: Size of the hidden state.
            more: What the hidden state has besides, for a finer choice.
            **of_cells: What only a Transformer has.

        Returns:
            An `LSTMConfig`.
        """
        share = width / self.hidden_dim
        return self.replace(
            hidden_dim=width + more,
            encoder_dim=max(1, round(share * self.encoder_dim)),
            attention_dim=max(1, round(share * self.attention_dim)),
        )

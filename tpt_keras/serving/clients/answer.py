import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a server said to one question.

    Attributes:
        answer: The answer; empty if there is none.
        log_prob: Log probability of the answer, or `None` where the server
            gives none.
        status: `"OK"`, or why there is no answer: `"EMPTY"`, `"TOO_LONG"`,
            `"UNKNOWN_CHARACTER"` or `"INVALID_UTF8"`.
    """

    answer: str
    log_prob: float | None
    status: str


def finite_or_none(log_prob):
    """A log probability as `Answer` has it.

    Args:
        log_prob: A number, or `None`.

    Returns:
        A float, or `None` for what is no number.

    Raises:
        TypeError: If it is something else.
        OverflowError: If it is an integer of hundreds of digits.
    """
    if log_prob is None or not math.isfinite(log_prob):
        return None
    return float(log_prob)

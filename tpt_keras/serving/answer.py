import dataclasses


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

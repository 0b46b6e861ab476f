"""Answers to questions, and the reasons why a question has none."""

import dataclasses
import math
import warnings
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_positive_integer

OK = "OK"
EMPTY = "EMPTY"
TOO_LONG = "TOO_LONG"
UNKNOWN_CHARACTER = "UNKNOWN_CHARACTER"
UNKNOWN_WORD = "UNKNOWN_WORD"
INVALID_UTF8 = "INVALID_UTF8"
# The log-probability of the impossible. Minus infinity would lead to NaNs.
IMPOSSIBLE = -1e9
# The symbol of a vocabulary of words. Without it tokens are characters.
WORDS = "<words>"

_EXPLANATIONS = {
    EMPTY: "is empty or blank; ask something",
    TOO_LONG: "is longer than the model takes; shorten it",
    UNKNOWN_CHARACTER: (
        "has a character that is not in the model's vocabulary; leave it out"
    ),
    UNKNOWN_WORD: "has a word that is not in the model's vocabulary",
    INVALID_UTF8: "is not valid text; encode it in UTF-8",
}
# Limits of a message: questions, and characters of each.
_MOST_NAMED = 20
_MOST_SHOWN = 40


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer to a question, or the reason why there is none.

    Attributes:
        text: The answer; empty if there is none.
        log_prob: Log-probability of the answer in nats, or `None` if it is
            unknown or there is no answer.
        status: `"OK"`, or why there is no answer: `"EMPTY"`, `"TOO_LONG"`,
            `"UNKNOWN_CHARACTER"`, `"UNKNOWN_WORD"` or `"INVALID_UTF8"`.
        alternatives: Tuple of the next best `Answer`s, the best first.
    """

    text: str
    log_prob: float | None = None
    status: str = OK
    alternatives: tuple["Answer", ...] = ()

    def __post_init__(self):
        number = self.log_prob
        if number is not None:
            # Exports give a refused question 0, as if it were certain.
            is_known = self.status == OK and math.isfinite(number)
            number = float(number) if is_known else None
        object.__setattr__(self, "log_prob", number)


def best_answer(answers: Iterable[Answer]) -> Answer:
    """Returns the first of the answers, with the possible others."""
    best, *others = answers
    possible = tuple(
        other
        for other in others
        if other.log_prob is not None and other.log_prob > IMPOSSIBLE
    )
    return dataclasses.replace(best, alternatives=possible)


def list_of_texts(
    texts: Iterable[str | bytes], field: str = "questions"
) -> list[str]:
    """Returns strings or bytes as a list of strings.

    Raises:
        UsageError: If they are anything else, such as a table, whose items
            would be the names of its columns.
    """
    is_list = isinstance(texts, Iterable) and not isinstance(
        texts, (str, bytes, Mapping)
    )
    if not is_list or getattr(texts, "ndim", 1) != 1:
        raise _no_texts(field, texts)
    # The items of a TensorFlow tensor are tensors, too.
    texts = [x.numpy() if hasattr(x, "numpy") else x for x in texts]
    for text in texts:
        if not isinstance(text, (str, bytes)):
            raise _no_texts(field, text)
    return [
        # Invalid UTF-8 becomes lone surrogates, which tokenizers report.
        text.decode("utf-8", "surrogateescape")
        if isinstance(text, bytes)
        else text
        for text in texts
    ]


def _no_texts(field, value):
    shown = " ".join(repr(value).split())[:_MOST_SHOWN]
    return UsageError(
        f"`{field}` must be a list of strings, such as one column of a table. "
        f"Received: {shown} (of type {type(value).__name__}).",
        field=field,
    )


def explain(
    question: str,
    status: str,
    vocabulary: Sequence[str] = (),
    max_length: int | None = None,
) -> str:
    """Returns why a question has no answer, as the end of a sentence.

    `vocabulary` and `max_length`, the model's, make it more precise.
    """
    if status == UNKNOWN_CHARACTER and vocabulary:
        characters = [symbol for symbol in vocabulary if len(symbol) == 1]
        unknown = next((c for c in question if c not in characters), "")
        return (
            f"has the character {unknown!r}, which is not in the model's "
            f"vocabulary {''.join(characters)!r}"
        )
    if status == UNKNOWN_WORD and vocabulary:
        known = set(vocabulary)
        unknown = next((w for w in question.split() if w not in known), "")
        if unknown:  # and no special symbol
            return (
                f"has the word {unknown[:_MOST_SHOWN]!r}, which is not in the "
                f"model's vocabulary of {len(known)} symbols"
            )
    if status == TOO_LONG and max_length:
        length, unit = len(question), "characters"
        if WORDS in vocabulary:
            length, unit = len(question.split()), "words"
        return f"has {length} {unit}; shorten it to {max_length}"
    return _EXPLANATIONS.get(status, "has no answer")


def unanswered(
    questions: Sequence[str],
    answers: Sequence[Answer],
    vocabulary: Sequence[str] = (),
    max_length: int | None = None,
) -> str:
    """Describes the questions without an answer in one line, or an empty one.

    For the vocabulary and the length see `explain`.
    """
    faults = [
        f"{question[:_MOST_SHOWN]!r} "
        f"{explain(question, answer.status, vocabulary, max_length)} "
        f"({answer.status})"
        for question, answer in zip(questions, answers)
        if answer.status != OK
    ]
    if not faults:
        return ""
    more = len(faults) - _MOST_NAMED
    return (
        f"{len(faults)} of {len(answers)} questions have no answer: "
        + "; ".join(faults[:_MOST_NAMED])
        + (f"; and {more} more." if more > 0 else ".")
    )


class AnsweringModel:
    """Base class of generators, exported models and clients.

    A subclass defines `_answer_batch`, from a list of strings to `Answer`s,
    and may define `_score_batch`, from two lists.
    """

    batch_size = 64
    # The model's tokenizer; `None` if only an export or a server has it.
    tokenizer: Any = None
    # The model's hyperparameters; empty if they are unknown.
    config: dict[str, Any] = {}

    def solve(
        self, questions: Sequence[str | bytes], batch_size: int | None = None
    ) -> list[str]:
        """Answers questions with a list of strings.

        A question without an answer gets an empty string, and one warning names
        all such questions. For the arguments and the errors see `answer`.
        """
        return solve(self, questions, batch_size)

    def unanswered(
        self, questions: Sequence[str], answers: Sequence[Answer]
    ) -> str:
        """Describes the questions without an answer; see `unanswered`."""
        vocabulary = self.config.get("vocabulary", ())
        limit = self.config.get("max_question_length")
        return unanswered(questions, answers, vocabulary, limit)

    def answer(
        self, questions: Sequence[str | bytes], batch_size: int | None = None
    ) -> list[Answer]:
        """Answers questions, in batches of similar lengths.

        A question that cannot be answered gets a status that tells why, and
        does not affect the others.

        Args:
            questions: List of strings, or of bytes in UTF-8.
            batch_size: Number of questions answered together. Defaults to the
                model's `batch_size`.

        Returns:
            List of as many `Answer`s.

        Raises:
            UsageError: If `questions` are no list of strings, if `batch_size`
                is not a positive integer, or if the model, or the server, gives
                no answers.
        """
        texts = list_of_texts(questions)
        answers = [Answer("", None, self._status(text)) for text in texts]
        return self._in_batches(self._answer_batch, answers, batch_size, texts)

    def score(
        self,
        questions: Sequence[str | bytes],
        answers: Sequence[str | bytes],
        batch_size: int | None = None,
    ) -> list[Answer]:
        """Computes the log-probability of an answer to each question.

        All characters of an answer are read in one pass, so that it takes less
        time than to answer. For the arguments and the errors see `answer`.

        Args:
            questions: List of strings, or of bytes in UTF-8.
            answers: List of as many.
            batch_size: Number of questions read together.

        Returns:
            List of the answers as `Answer`s. One that the model cannot give,
            because it is too long or has an unknown character or word, has a
            status that says so.

        Example:

        ```python
        [right, wrong] = model.score(["What is 1 + 1?"] * 2, ["2", "3"])
        ```
        """
        texts = list_of_texts(questions)
        given = list_of_texts(answers, "answers")
        if len(texts) != len(given):
            raise UsageError(
                "Each question needs one answer. Received: "
                f"{len(texts)} questions and {len(given)} answers.",
                field="answers",
            )
        scored = [
            Answer(answer, None, self._status(text, answer))
            for text, answer in zip(texts, given)
        ]
        return self._in_batches(
            self._score_batch, scored, batch_size, texts, given
        )

    def _in_batches(self, run, answers, batch_size, *columns):
        """Replaces the answers that are OK by those of `run`."""
        batch_size = self.batch_size if batch_size is None else batch_size
        check_positive_integer("batch_size", batch_size)
        # Batches of similar lengths have little padding.
        order = [i for i, answer in enumerate(answers) if answer.status == OK]
        order.sort(key=lambda i: len(columns[0][i]))
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            batch = run(*([column[i] for i in indices] for column in columns))
            for index, answer in zip(indices, batch, strict=True):
                answers[index] = answer
        return answers

    def _status(self, question, answer=""):
        """Returns the status that a question has before it is answered."""
        if self.tokenizer is None:
            return OK
        longest = self.config["max_question_length"]
        status = self.tokenizer.question_status(question, longest)
        if status == OK:
            longest = self.config["max_answer_length"]
            status = self.tokenizer.answer_status(answer, longest)
        return status

    def _answer_batch(self, questions):
        raise NotImplementedError

    def _score_batch(self, questions, answers):
        raise UsageError(f"An {type(self).__name__} scores no answers.")


def solve(
    model: AnsweringModel,
    questions: Sequence[str | bytes],
    batch_size: int | None,
) -> list[str]:
    """Does the work of the methods `solve`, and warns their caller."""
    texts = list_of_texts(questions)
    answers = model.answer(texts, batch_size)
    faults = model.unanswered(texts, answers)
    if faults:
        warnings.warn(faults, stacklevel=3)
    return [answer.text for answer in answers]


def to_bytes(texts: Iterable[str]) -> list[bytes]:
    """Encodes strings; lone surrogates become invalid UTF-8."""
    return [text.encode("utf-8", "surrogatepass") for text in texts]

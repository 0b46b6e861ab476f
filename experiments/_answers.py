"""What the commands say that ask a model."""

from tpt_keras.errors import UsageError

_EXPLANATIONS = {
    "EMPTY": "is empty; ask something",
    "TOO_LONG": "has more characters than the model takes; shorten it",
    "UNKNOWN_CHARACTER": (
        "has a character that is not in the model's vocabulary; leave it out"
    ),
    "INVALID_UTF8": "is not valid text; encode it in UTF-8",
}
# Of those without an answer.
_MOST_NAMED = 20


def print_answers(questions, answers, explain=None):
    """Prints a line for every question, which is empty if it has no answer.

    Args:
        questions: List of strings.
        answers: List of as many `Answer`s.
        explain: Function from a question and its status to what is wrong with
            it, or `None` if it does not know.

    Raises:
        UsageError: When all are printed: names the questions without an answer
            and says why. If none has an answer, nothing is printed.
    """
    problems = []
    for question, answer in zip(questions, answers):
        if answer.status != "OK":
            problem = explain and explain(question, answer.status)
            problem = problem or _EXPLANATIONS.get(answer.status, "no answer")
            problems.append(f"{question[:40]!r} {problem} ({answer.status})")
    if len(problems) < len(answers):
        print("\n".join(answer.text for answer in answers), flush=True)
    if problems:
        more = len(problems) - _MOST_NAMED
        raise UsageError(
            f"{len(problems)} of {len(answers)} questions have no answer: "
            + "; ".join(problems[:_MOST_NAMED])
            + (f"; and {more} more." if more > 0 else ".")
        )

from tpt_keras.answer import OK
from tpt_keras.answer import unanswered
from tpt_keras.errors import UsageError


def print_answers(questions, answers, config=None):
    """Prints a line for every question, which is empty if it has no answer.

    Args:
        questions: List of strings.
        answers: List of as many `Answer`s.
        config: Dict of the model's configuration, if it is known.

    Raises:
        UsageError: After printing, if there are questions without an answer.
            If none has an answer, nothing is printed.
    """
    if any(answer.status == OK for answer in answers):
        print("\n".join(answer.text for answer in answers), flush=True)
    config = config or {}
    faults = unanswered(
        questions,
        answers,
        config.get("vocabulary", ()),
        config.get("max_question_length"),
    )
    if faults:
        raise UsageError(faults)

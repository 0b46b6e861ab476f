import math

from tpt_keras.answer import OK
from tpt_keras.answer import unanswered
from tpt_keras.errors import UsageError


def best_answers(generator, question):
    """Finds the best answers to a question.

    Args:
        generator: A `Generator` with a `BeamSampler`.
        question: A string.

    Returns:
        List of pairs, an answer and its probability, the best first.

    Raises:
        UsageError: If the question cannot be answered.
    """
    [best] = generator.answer([question])
    if best.status != OK:
        config = generator.model.config
        raise UsageError(
            unanswered(
                [question],
                [best],
                config.vocabulary,
                config.max_question_length,
            )
        )
    return [
        (answer.text, math.exp(answer.log_prob))
        for answer in (best, *best.alternatives)
    ]

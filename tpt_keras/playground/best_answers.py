import numpy as np

from tpt_keras.analysis.cells import encode_questions


def best_answers(model, question, count):
    """The best answers that beam search finds to a question.

    Args:
        model: A `SequenceToSequence`.
        question: A string.
        count: Number of answers.

    Returns:
        List of pairs, an answer and its probability, the best first.

    Raises:
        UsageError: If the question is empty or too long, or holds a character
            that is not in the vocabulary.
    """
    found = model.search_on_batch(
        encode_questions(model, [question]), beam_width=count
    )
    probabilities = np.exp(found["log_probs"][0].astype("float64"))
    return [
        (model.tokenizer.decode(token_ids), probability)
        for token_ids, probability in zip(
            found["token_ids"][0], probabilities.tolist()
        )
        # Beams that found nothing have none.
        if probability > 0.0
    ]

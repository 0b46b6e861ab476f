"""Answers to questions, whatever computes them."""

from tpt_keras.answer import Answer


def answers_from_columns(count, texts, log_probs, statuses):
    """Combines the outputs of a model to answers.

    Args:
        count: Number of the questions.
        texts: List of strings.
        log_probs: List of numbers or `None`s. Those that are not finite
            become `None`.
        statuses: List of strings.

    Returns:
        List of `Answer`s.

    Raises:
        TypeError: If a value has another type.
        ValueError: If the lists are not of that length.
    """
    answers = []
    for text, log_prob, status in zip(texts, log_probs, statuses, strict=True):
        if not isinstance(text, str) or not isinstance(status, str):
            raise TypeError("an answer or a status is not a string")
        answers.append(Answer(text, log_prob, status))
    if len(answers) != count:
        raise ValueError(f"{len(answers)} of {count} answers")
    return answers


def answer_in_batches(answer_batch, questions, batch_size):
    """Answers questions in batches of similar lengths.

    Args:
        answer_batch: Function from a list of bytes to a list of as many
            `Answer`s.
        questions: List of strings or of bytes. Bytes may be invalid UTF-8.
        batch_size: Most questions of a batch.

    Returns:
        List of `Answer`s in the order of the questions.

    Raises:
        TypeError: If `questions` is a single string.
    """
    if isinstance(questions, (str, bytes)):
        raise TypeError("`questions` must be a list of strings.")
    questions = [
        # Lone surrogates become invalid UTF-8, which the model reports.
        question.encode("utf-8", "surrogatepass")
        if isinstance(question, str)
        else question
        for question in questions
    ]
    order = sorted(range(len(questions)), key=lambda i: len(questions[i]))
    answers = [None] * len(questions)
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        batch = answer_batch([questions[i] for i in indices])
        for index, answer in zip(indices, batch, strict=True):
            answers[index] = answer
    return answers

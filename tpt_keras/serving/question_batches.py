"""Batches of questions, for clients and for exported models."""


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

def question_batches(questions, batch_size):
    """Cuts questions into what is asked at once.

    Args:
        questions: List of strings, or of bytes of any kind.
        batch_size: Most questions of a batch.

    Yields:
        Lists of bytes: what is no valid text is the model's to judge.

    Raises:
        TypeError: If it is a single question.
    """
    if isinstance(questions, (str, bytes)):
        raise TypeError("`questions` must be a list of strings.")
    questions = [
        question.encode("utf-8", "surrogatepass")
        if isinstance(question, str)
        else question
        for question in questions
    ]
    for start in range(0, len(questions), batch_size):
        yield questions[start : start + batch_size]

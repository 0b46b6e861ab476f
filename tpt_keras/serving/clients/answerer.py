import abc


class Answerer(abc.ABC):
    """What can be asked questions, wherever its model is.

    Attributes:
        max_batch_size: Most questions that are asked at once.
    """

    # A decoding step costs little more for these than for one question.
    max_batch_size = 64

    def answer(self, questions):
        """Answers questions.

        A question that cannot be answered gets its status and fails no other.

        Args:
            questions: List of strings, or of bytes of any kind.

        Returns:
            List of as many `Answer`s.

        Raises:
            UsageError: If the model does not answer, or is damaged; of a
                server, a `ServingError`.
        """
        if isinstance(questions, (str, bytes)):
            raise TypeError("`questions` must be a list of strings.")
        questions = [
            # What is no valid text is the model's to judge.
            question.encode("utf-8", "surrogatepass")
            if isinstance(question, str)
            else question
            for question in questions
        ]
        # Questions of like length together, or most of a batch is padding.
        order = sorted(range(len(questions)), key=lambda i: len(questions[i]))
        answers = [None] * len(questions)
        for start in range(0, len(questions), self.max_batch_size):
            places = order[start : start + self.max_batch_size]
            batch = [questions[place] for place in places]
            found = self._answer_batch(batch)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return answers

    @abc.abstractmethod
    def _answer_batch(self, questions):
        """The `Answer`s to at most `max_batch_size` bytes."""

import dataclasses

from tpt_keras.serving.answers import Answer
from tpt_keras.serving.answers import answer_in_batches
from tpt_keras.serving.answers import answers_from_columns


class KerasModel:
    """A Keras model, asked as an exported one is.

    A question that the model cannot read has its status, where the model's own
    `solve` refuses them all.

    Args:
        model: A `SequenceToSequence`.

    Attributes:
        config: Dict of the model's hyperparameters.

    Example:

    ```python
    model = KerasModel(load_model("models/demo"))
    [answer] = model.answer(["What is the tens digit of 31859?"])
    ```
    """

    def __init__(self, model):
        self._model = model
        self.config = dataclasses.asdict(model.config)

    def answer(self, questions):
        """Answers questions.

        Args:
            questions: List of strings or of bytes.

        Returns:
            List of `Answer`s.
        """
        return answer_in_batches(self._answer_batch, questions, 64)

    def _answer_batch(self, questions):
        # What is no UTF-8 becomes halves of pairs, which have their status.
        texts = [text.decode("utf-8", "surrogateescape") for text in questions]
        tokenizer = self._model.tokenizer
        longest = self._model.config.max_question_length
        statuses = [tokenizer.question_status(text, longest) for text in texts]
        good = [text for text, s in zip(texts, statuses) if s == "OK"]
        found = iter(self._solve(good) if good else [])
        return [
            next(found) if status == "OK" else Answer("", None, status)
            for status in statuses
        ]

    def _solve(self, questions):
        tokenizer = self._model.tokenizer
        found = self._model.search_on_batch(tokenizer.encode_batch(questions))
        return answers_from_columns(
            len(questions),
            [tokenizer.decode(row) for row in found["token_ids"][:, 0]],
            found["log_probs"][:, 0],
            ["OK"] * len(questions),
        )

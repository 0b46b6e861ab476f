import pytest

from tpt_keras.serving.clients.answerer import Answerer


class Batches(Answerer):
    """Answers with the questions, and knows the batches it was asked."""

    def __init__(self, max_batch_size):
        self.max_batch_size = max_batch_size
        self.batches = []

    def _answer_batch(self, questions):
        self.batches.append(questions)
        return questions


def test_of_like_length_at_a_time_and_in_order():
    questions = ["1 + 1", b"\xff", "é", "\ud800"]
    expected = [b"1 + 1", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80"]
    for size, batches in (
        (4, [[*expected[1:], expected[0]]]),
        (3, [expected[1:], expected[:1]]),
    ):
        model = Batches(size)
        assert model.answer(iter(questions)) == expected
        assert model.batches == batches
    assert Batches(3).answer([]) == []


@pytest.mark.parametrize("question", ["1 + 1", b"1 + 1"])
def test_a_question_alone(question):
    with pytest.raises(TypeError, match="must be a list"):
        Batches(3).answer(question)

import pytest

from tpt_keras.serving.clients.answerer import Answerer


class Batches(Answerer):
    """Answers with the batches that it is asked."""

    def __init__(self, max_batch_size):
        self.max_batch_size = max_batch_size

    def _answer_batch(self, questions):
        return [questions]


def test_so_many_at_a_time():
    questions = ["1 + 1", b"\xff", "é", "\ud800"]
    expected = [b"1 + 1", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80"]
    assert Batches(4).answer(questions) == [expected]
    batches = [expected[:3], expected[3:]]
    assert Batches(3).answer(iter(questions)) == batches
    assert Batches(3).answer([]) == []


@pytest.mark.parametrize("question", ["1 + 1", b"1 + 1"])
def test_a_question_alone(question):
    with pytest.raises(TypeError, match="must be a list"):
        Batches(3).answer(question)

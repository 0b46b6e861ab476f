import pytest

from tpt_keras.serving.clients.question_batches import question_batches


def test_so_many_at_a_time():
    questions = ["1 + 1", b"\xff", "é", "\ud800"]
    expected = [b"1 + 1", b"\xff", b"\xc3\xa9", b"\xed\xa0\x80"]
    assert list(question_batches(questions, 4)) == [expected]
    assert list(question_batches(iter(questions), 3)) == [
        expected[:3],
        expected[3:],
    ]
    assert list(question_batches([], 3)) == []


@pytest.mark.parametrize("question", ["1 + 1", b"1 + 1"])
def test_a_question_alone(question):
    with pytest.raises(TypeError, match="must be a list"):
        list(question_batches(question, 3))

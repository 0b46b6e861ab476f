import types

import pytest

from tpt_keras.analysis import predictions
from tpt_keras.analysis.predictions import Prediction
from tpt_keras.analysis.predictions import predict
from tpt_keras.analysis.predictions import predict_samples
from tpt_keras.answer import EMPTY
from tpt_keras.answer import Answer


class FirstCharacter:
    """A generator that answers with the first character of a question."""

    def __init__(self):
        config = types.SimpleNamespace(vocabulary=(), max_question_length=40)
        self.model = types.SimpleNamespace(config=config)
        self.counts = []

    def answer(self, questions, on_answers=None):
        self.counts.append(len(questions))
        if on_answers:
            on_answers(len(questions))
        return [
            Answer(q[0], -1.0 / 3.0) if q else Answer("", None, EMPTY)
            for q in questions
        ]


@pytest.fixture
def generator():
    return FirstCharacter()


def test_predictions_have_answers_in_order(generator):
    problems = [("ab", "a"), ("", ""), ("b", "c")]
    counts = []
    assert [
        (each.question, each.answer, each.log_prob, each.is_right)
        for each in predict(generator, problems, counts.append)
    ] == [
        ("ab", "a", -0.33333, True),
        ("", None, None, False),
        ("b", "b", -0.33333, False),
    ]
    assert counts == [3]


def test_unreadable_question_says_why(generator):
    [bad, good] = predict(generator, [("", ""), ("7", "7")])
    assert bad.unread
    assert not good.unread


def samples(count):
    return {
        key: [(f"{key}{number}", key) for number in range(count)]
        for key in "abc"
    }


def test_samples_are_answered_together(generator):
    # A question that is there twice is asked once.
    kept = {}
    both = {**samples(2), "d": [("d", "d")] * 2}
    found = predict_samples(
        lambda: generator, both, lambda key: [], len_of, kept.__setitem__
    )
    assert generator.counts == [7]
    assert kept == found
    assert {key: len(of_key) for key, of_key in found.items()} == {
        "a": 2,
        "b": 2,
        "c": 2,
        "d": 2,
    }
    assert all(each.is_right for of_key in found.values() for each in of_key)


def len_of(count):
    assert count >= 0


def test_resumes_after_an_interruption(generator, monkeypatch):
    monkeypatch.setattr(predictions, "_GROUP_SIZE", 16)
    kept, asked = {}, []

    def broken():
        asked.append(len(kept))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return generator

    def run():
        return predict_samples(
            broken,
            samples(16),
            lambda key: kept.get(key, []),
            len_of,
            kept.__setitem__,
        )

    with pytest.raises(KeyboardInterrupt):
        run()
    assert list(kept) == ["a"]
    assert generator.counts == [16]
    found = run()
    assert generator.counts == [16] * 3
    assert found == kept
    # What is known is not asked again, nor is the model needed.
    before = len(asked)
    assert run() == found
    assert len(asked) == before


def test_other_problems_are_not_known(generator):
    known = [Prediction("a0", "b", "a"), Prediction("a1", "a", "x")]
    found = predict_samples(
        lambda: generator,
        {"a": samples(2)["a"]},
        lambda key: known,
        len_of,
        lambda *_: None,
    )
    assert [each.answer for each in found["a"]] == ["a", "x"]
    assert generator.counts == [1]

import types

import numpy as np
import pytest

from tpt_keras.analysis.predictions import Prediction
from tpt_keras.analysis.predictions import predict
from tpt_keras.analysis.predictions import predict_samples
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer


class FirstCharacter:
    """Answers with the first character of a question, and then its end."""

    def __init__(self):
        self.config = types.SimpleNamespace(
            max_question_length=40, max_answer_length=3
        )
        self.tokenizer = CharacterTokenizer()
        self.shapes = []

    def search_on_batch(self, token_ids, max_length):
        self.shapes.append(token_ids.shape)
        assert max_length == 4
        answers = np.zeros((len(token_ids), 1, max_length), "int32")
        answers[:, 0, 0] = token_ids[:, 1]
        answers[:, 0, 1] = self.tokenizer.end_id
        return {
            "token_ids": answers,
            "log_probs": -token_ids[:, 1:2].astype("float32"),
        }


@pytest.fixture
def model():
    return FirstCharacter()


def test_batches_by_length_and_answers_in_order(model):
    questions = ["a" * 20, "b", "c" * 38, "d" * 3, "e" * 19]
    problems = [(question, "b") for question in questions]
    counts = []
    predictions = predict(model, problems, 2, counts.append)
    assert [each.question for each in predictions] == questions
    assert [each.answer for each in predictions] == list("abcde")
    assert [each.is_right for each in predictions] == [0, 1, 0, 0, 0]
    token_ids = [model.tokenizer.token_ids[each] for each in "abcde"]
    assert [-each.log_prob for each in predictions] == token_ids
    # The two short ones together, and all of one size.
    assert model.shapes == [(2, 5), (2, 22), (2, 40)]
    assert sum(counts) == 5


def test_what_cannot_be_read_is_wrong(model):
    questions = ["", "x" * 41, "1 % 2", "7"]
    predictions = predict(model, [(question, "") for question in questions])
    assert [each.unread for each in predictions] == [
        "empty",
        "too long: 41 characters, at most 40",
        "unknown character: '%'",
        None,
    ]
    assert [each.answer for each in predictions] == [None, None, None, "7"]
    assert not any(each.is_right for each in predictions)
    assert model.shapes == [(1, 3)]


def samples(count):
    return {
        key: [(f"{key}{number}", key) for number in range(count)]
        for key in "abc"
    }


def test_samples_are_answered_together(model):
    """And one with a question twice, which is asked once."""
    kept = {}
    both = {**samples(2), "d": [("d", "d")] * 2}
    found = predict_samples(
        lambda: model, both, lambda key: [], 8, len_of, kept.__setitem__
    )
    assert model.shapes == [(7, 4)]
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


def test_goes_on_where_it_was(model):
    kept, asked = {}, []

    def broken():
        asked.append(len(kept))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return model

    def run():
        return predict_samples(
            broken,
            samples(16),
            lambda key: kept.get(key, []),
            1,
            len_of,
            kept.__setitem__,
        )

    with pytest.raises(KeyboardInterrupt):
        run()
    assert list(kept) == ["a"]
    assert len(model.shapes) == 16
    found = run()
    assert len(model.shapes) == 48
    assert found == kept
    # What is known is not asked again, nor is the model needed.
    before = len(asked)
    assert run() == found
    assert len(asked) == before


def test_other_problems_are_not_known(model):
    known = [Prediction("a0", "b", "a"), Prediction("a1", "a", "x")]
    found = predict_samples(
        lambda: model,
        {"a": samples(2)["a"]},
        lambda key: known,
        8,
        len_of,
        lambda *_: None,
    )
    assert [each.answer for each in found["a"]] == ["a", "x"]
    assert model.shapes == [(1, 4)]

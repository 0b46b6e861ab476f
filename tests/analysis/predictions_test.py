import dataclasses
import json
import types

import pytest

from tpt_keras.analysis import predictions
from tpt_keras.analysis.predictions import Prediction
from tpt_keras.analysis.predictions import PredictionFolder
from tpt_keras.analysis.predictions import model_fingerprint
from tpt_keras.analysis.predictions import predict
from tpt_keras.analysis.predictions import predict_samples
from tpt_keras.answer import EMPTY
from tpt_keras.answer import Answer
from tpt_keras.models import Transformer

PREDICTIONS = [
    Prediction("What is 1 + 1?", "2", "2", -0.25),
    Prediction("1 ± 1", "0\n2", unread="unknown character: '±'"),
]


class FirstCharacter:
    """A generator that answers with the first character of a question."""

    def __init__(self):
        config = types.SimpleNamespace(vocabulary=(), max_question_length=40)
        self.model = types.SimpleNamespace(config=config)
        self.counts = []

    def answer(self, questions):
        self.counts.append(len(questions))
        return [
            Answer(q[0], -1.0 / 3.0) if q else Answer("", None, EMPTY)
            for q in questions
        ]


@pytest.fixture
def generator():
    return FirstCharacter()


def test_predictions_are_in_order_and_an_unread_question_is_wrong(generator):
    found = predict(generator, [("ab", "a"), ("", ""), ("b", "c")])
    assert [dataclasses.astuple(each)[:4] for each in found] == [
        ("ab", "a", "a", -0.33333),
        ("", "", None, None),
        ("b", "c", "b", -0.33333),
    ]
    assert [each.is_right for each in found] == [True, False, False]
    assert [bool(each.unread) for each in found] == [False, True, False]


def samples(count):
    return {
        key: [(f"{key}{number}", key) for number in range(count)]
        for key in "abc"
    }


def test_samples_are_answered_together_and_equal_questions_once(generator):
    kept = {}
    both = {**samples(2), "d": [("d", "d")] * 2}
    found = predict_samples(
        lambda: generator, both, lambda key: [], kept.__setitem__
    )
    assert generator.counts == [7]
    assert kept == found
    assert [len(of_key) for of_key in found.values()] == [2, 2, 2, 2]
    assert all(each.is_right for of_key in found.values() for each in of_key)


def test_interrupted_predictions_resume(generator, monkeypatch):
    monkeypatch.setattr(predictions, "_GROUP_SIZE", 16)
    kept, asked = {}, []

    def make_generator():
        asked.append(len(kept))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return generator

    def run():
        return predict_samples(
            make_generator,
            samples(16),
            lambda key: kept.get(key, []),
            kept.__setitem__,
        )

    with pytest.raises(KeyboardInterrupt):
        run()
    assert list(kept) == ["a"]
    assert generator.counts == [16]
    found = run()
    assert generator.counts == [16] * 3
    assert found == kept
    # Known predictions need no model.
    before = len(asked)
    assert run() == found
    assert len(asked) == before


def test_a_known_prediction_of_another_target_is_not_used(generator):
    known = [Prediction("a0", "b", "a"), Prediction("a1", "a", "x")]
    found = predict_samples(
        lambda: generator,
        {"a": samples(2)["a"]},
        lambda key: known,
        lambda *_: None,
    )
    assert [each.answer for each in found["a"]] == ["a", "x"]
    assert generator.counts == [1]


def test_predictions_are_json_lines(tmp_path):
    folder = PredictionFolder(tmp_path / "model", {"fingerprint": "1"})
    assert folder.read("train", "a__b") == []
    folder.write("train", "a__b", PREDICTIONS)
    assert folder.read("train", "a__b") == PREDICTIONS
    assert folder.read("interpolate", "a__b") == []
    path = tmp_path / "model" / "train" / "a__b.jsonl"
    first, second = map(json.loads, path.read_text().splitlines())
    assert first == {
        "question": "What is 1 + 1?",
        "target": "2",
        "answer": "2",
        "log_prob": -0.25,
        "unread": None,
    }
    assert second["answer"] is None


def test_a_larger_sample_is_kept(tmp_path):
    folder = PredictionFolder(tmp_path, {"fingerprint": "1"})
    other = Prediction("What is 1 + 2?", "3", "4", -2.0)
    for written, kept in (
        (PREDICTIONS, PREDICTIONS),
        (PREDICTIONS[1:], PREDICTIONS),
        ([*PREDICTIONS, other], [*PREDICTIONS, other]),
        ([Prediction("other data", "1", "1", 0.0)], None),
    ):
        folder.write("train", "a__b", written)
        assert folder.read("train", "a__b") == (kept or written)


def test_predictions_of_another_model_are_removed(tmp_path):
    PredictionFolder(tmp_path, {"fingerprint": "1"}).write(
        "train", "a__b", PREDICTIONS
    )
    other = PredictionFolder(tmp_path, {"fingerprint": "2"})
    assert other.read("train", "a__b") == []
    other.write("train", "c__d", PREDICTIONS[:1])
    assert other.read("train", "c__d") == PREDICTIONS[:1]
    assert not (tmp_path / "train" / "a__b.jsonl").exists()


@pytest.mark.parametrize("content", ['{"question": "1', "[1]", '{"x": 1}'])
@pytest.mark.parametrize("name", ["train/a__b.jsonl", "model.json"])
def test_damaged_files_count_as_missing(tmp_path, content, name):
    folder = PredictionFolder(tmp_path, {"fingerprint": "1"})
    folder.write("train", "a__b", PREDICTIONS)
    (tmp_path / name).write_text(content)
    assert folder.read("train", "a__b") == []
    folder.write("train", "a__b", PREDICTIONS)
    assert folder.read("train", "a__b") == PREDICTIONS


def test_the_fingerprint_depends_on_weights_and_configuration():
    def fingerprint(scale=1.0, **fields):
        model = Transformer.from_preset(
            "tp_transformer_tiny",
            **{"hidden_dim": 8, "num_heads": 2, "num_layers": 1, **fields},
        )
        for index, weight in enumerate(model.weights):
            weight.assign(weight * 0.0 + index * scale)
        return model_fingerprint(model)

    distinct = {
        fingerprint(),
        fingerprint(scale=2.0),
        fingerprint(num_heads=1),
        fingerprint(max_answer_length=4),
    }
    assert len(distinct) == 4
    assert fingerprint() in distinct

import json

import pytest

from tpt_keras.analysis.prediction_folder import PredictionFolder
from tpt_keras.analysis.prediction_folder import model_fingerprint
from tpt_keras.analysis.predictions import Prediction
from tpt_keras.models import Transformer

PREDICTIONS = [
    Prediction("What is 1 + 1?", "2", "2", -0.25),
    Prediction("1 ± 1", "0\n2", unread="unknown character: '±'"),
]


def test_a_line_of_json_each(tmp_path):
    folder = PredictionFolder(tmp_path / "model", {"fingerprint": "1"})
    assert folder.read("train", "a__b") == []
    folder.write("train", "a__b", PREDICTIONS)
    assert folder.read("train", "a__b") == PREDICTIONS
    assert folder.read("interpolate", "a__b") == []
    path = tmp_path / "model" / "train" / "a__b.jsonl"
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["question"] == "What is 1 + 1?"
    assert (first["target"], first["answer"], first["log_prob"]) == (
        "2",
        "2",
        -0.25,
    )
    assert second["answer"] is None


def test_a_larger_sample_stays(tmp_path):
    folder = PredictionFolder(tmp_path, {"fingerprint": "1"})
    other = Prediction("What is 1 + 2?", "3", "4", -2.0)
    for predictions, kept in (
        (PREDICTIONS, PREDICTIONS),
        (PREDICTIONS[1:], PREDICTIONS),
        ([*PREDICTIONS, other], [*PREDICTIONS, other]),
        ([Prediction("other data", "1", "1", 0.0)], None),
    ):
        folder.write("train", "a__b", predictions)
        assert folder.read("train", "a__b") == (kept or predictions)


def test_another_models(tmp_path):
    PredictionFolder(tmp_path, {"fingerprint": "1"}).write(
        "train", "a__b", PREDICTIONS
    )
    other = PredictionFolder(tmp_path, {"fingerprint": "2"})
    assert other.read("train", "a__b") == []
    other.write("train", "c__d", PREDICTIONS[:1])
    assert other.read("train", "c__d") == PREDICTIONS[:1]
    assert other.read("train", "a__b") == []
    assert not (tmp_path / "train" / "a__b.jsonl").exists()


@pytest.mark.parametrize("content", ['{"question": "1', "[1]", '{"x": 1}'])
@pytest.mark.parametrize("name", ["train/a__b.jsonl", "model.json"])
def test_damaged_ones_are_none(tmp_path, content, name):
    folder = PredictionFolder(tmp_path, {"fingerprint": "1"})
    folder.write("train", "a__b", PREDICTIONS)
    (tmp_path / name).write_text(content)
    assert folder.read("train", "a__b") == []
    folder.write("train", "a__b", PREDICTIONS)
    assert folder.read("train", "a__b") == PREDICTIONS


def test_the_fingerprint_is_the_weights_and_the_configurations():
    def fingerprint(scale=1.0, **fields):
        model = Transformer.from_preset(
            "tp_transformer_tiny",
            **{"hidden_dim": 8, "num_heads": 2, "num_layers": 1, **fields},
        )
        for index, weight in enumerate(model.weights):
            weight.assign(weight * 0.0 + index * scale)
        return model_fingerprint(model)

    different = {
        fingerprint(),
        fingerprint(scale=2.0),
        fingerprint(num_heads=1),
        fingerprint(max_answer_length=4),
    }
    assert len(different) == 4
    assert fingerprint() in different

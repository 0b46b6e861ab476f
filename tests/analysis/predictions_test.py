import dataclasses
import json
import types

import pytest

from tpt_keras.analysis.accuracies import kept_predictions
from tpt_keras.analysis.accuracies import model_fingerprint
from tpt_keras.analysis.accuracies import predict
from tpt_keras.answer import EMPTY
from tpt_keras.answer import Answer
from tpt_keras.models import Transformer

pytestmark = pytest.mark.exhaustive_on_jax


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


@pytest.fixture
def predict_kept(generator, tmp_path):
    """Function that predicts with the file `a.jsonl`."""

    def predict_kept(problems):
        path = tmp_path / "train" / "a.jsonl"
        return kept_predictions(path, problems, generator)

    return predict_kept


def test_lines_end_at_line_feeds_alone(predict_kept, generator):
    problems = [("a\u2028b\x85c", "a"), ("d\x1ce", "d")]
    assert predict_kept(problems) == predict_kept(problems)
    assert generator.counts == [2]


def test_predictions_are_json_lines(predict_kept, tmp_path):
    found = predict_kept([("1 ± 1", "1\n"), ("", "2")])
    lines = (tmp_path / "train" / "a.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        dataclasses.asdict(each) for each in found
    ]
    assert found[0].answer == "1"


def test_known_predictions_are_not_computed_again(predict_kept, generator):
    problems = [("ab", "a"), ("b", "b"), ("ab", "a")]
    found = predict_kept(problems)
    assert [each.question for each in found] == ["ab", "b", "ab"]
    # Equal questions are asked once.
    assert generator.counts == [2]
    assert predict_kept(problems[:1]) == found[:1]
    # The larger sample is still there.
    assert predict_kept(problems) == found
    assert generator.counts == [2]
    # A question with another target is another problem.
    assert predict_kept([("ab", "b"), ("b", "b")])[0].target == "b"
    assert generator.counts == [2, 1]


@pytest.mark.parametrize("content", ['{"question": "1', "[1]", '{"x": 1}'])
def test_damaged_file_counts_as_missing(
    predict_kept, generator, tmp_path, content
):
    found = predict_kept([("a", "a")])
    (tmp_path / "train" / "a.jsonl").write_text(content)
    assert predict_kept([("a", "a")]) == found
    assert predict_kept([("a", "a")]) == found
    assert generator.counts == [1, 1]


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

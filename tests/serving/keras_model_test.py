"""A Keras model, asked as its export is."""

import pytest

from tpt_keras.serving import KerasModel
from tpt_keras.serving import SavedModel

QUESTIONS = [
    "What is the units digit of 23?",
    "",
    "1",
    "x" * 161,
    b"\xff",
    "\ud800",
    "é" * 161,
    "5 % 3",
    b"1 + 1",
]


@pytest.mark.slow
def test_answers_as_its_export_does(version, untrained_model):
    model, exported = KerasModel(untrained_model), SavedModel(version)
    assert set(exported.config) >= set(model.config)
    found, expected = model.answer(QUESTIONS), exported.answer(QUESTIONS)
    assert [a.status for a in found] == [a.status for a in expected]
    assert {a.status for a in found} == {
        "OK",
        "EMPTY",
        "TOO_LONG",
        "INVALID_UTF8",
        "UNKNOWN_CHARACTER",
    }
    for answer, other in zip(found, expected):
        assert answer.text == other.text
        if answer.status == "OK":
            assert answer.log_prob == pytest.approx(other.log_prob, abs=1e-4)


def test_without_a_good_question(untrained_model):
    [answer] = KerasModel(untrained_model).answer([""])
    assert (answer.text, answer.log_prob, answer.status) == (
        "",
        None,
        "EMPTY",
    )

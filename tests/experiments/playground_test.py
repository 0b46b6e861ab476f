"""The playground's page in Streamlit's own tests, without a browser."""

import math
import sys

import pytest
from streamlit.testing.v1 import AppTest

from experiments import _cli
from tests.experiments.look_inside_test import TINY
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.models import SequenceToSequence
from tpt_keras.models.stored import load_model

PAGE = _cli.CONFIGS.with_name("playground.py")

pytestmark = pytest.mark.usefixtures("without_graphs")


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Function that asks a new model a question, and returns the page."""

    def ask(question, preset="tp_transformer_tiny", **fields):
        model = SequenceToSequence.from_preset(preset, **fields)
        model.save(tmp_path / "model.keras")
        monkeypatch.setattr("sys.argv", ["playground", str(tmp_path)])
        # The page becomes it, and processes that start would run it.
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        page = AppTest.from_file(str(PAGE), default_timeout=60).run()
        page.text_input[0].set_value(question).run()
        assert not page.exception
        return page

    return ask


@pytest.mark.slow
def test_a_question_gets_answers_attention_and_roles(ask, tmp_path):
    page = ask(" 2*x + 3*x ", **{**TINY, "num_layers": 2})
    generator = Generator(load_model(tmp_path), BeamSampler(5))
    [best] = generator.answer(["2*x + 3*x"])
    bars = [bar.proto.text.replace("\\", "") for bar in page.get("progress")]
    assert bars == [
        f"{answer.text or '(nothing)'} ({100 * math.exp(answer.log_prob):.3g}%)"
        for answer in (best, *best.alternatives)
    ]
    assert len(bars) == 5
    page.selectbox[0].set_value(1).run()
    attention, roles = (tab.get("iframe")[0].proto.srcdoc for tab in page.tabs)
    assert '"question": "2*x + 3*x"' in attention
    assert "layer 1, head 1" in roles


@pytest.mark.parametrize("question", ["What is 5% of :100:?", "1" * 161])
def test_a_refused_question_shows_one_line(ask, question):
    page = ask(question, **TINY)
    [error] = page.error
    assert "\n" not in error.value
    assert not page.tabs


def test_a_missing_part_is_one_line(ask):
    page = ask("1", "lstm", hidden_dim=8, max_answer_length=2)
    assert page.get("progress")
    for tab in page.tabs:
        [info] = tab.info
        assert "SimpleLSTM" in info.value

"""The playground's page in Streamlit's own tests, without a browser."""

import json
import math

import pytest
from streamlit.testing.v1 import AppTest

from tests.conftest import MODULE
from tpt_keras import playground
from tpt_keras.analysis.attention import attention_weights
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.models import SequenceToSequence
from tpt_keras.models.load_model import load_model
from tpt_keras.training.config import TrainingConfig

TINY = {
    "hidden_dim": 16,
    "intermediate_dim": 16,
    "num_heads": 2,
    "num_layers": 2,
    "max_answer_length": 2,
}
# The order of the tabs.
ATTENTION, ROLES = range(2)

pytestmark = pytest.mark.usefixtures("without_graphs")


def make_model(folder, preset="tp_transformer_tiny", modules=(), **fields):
    """Saves an untrained model, and returns its folder."""
    SequenceToSequence.from_preset(preset, **fields).save(
        folder / "model.keras"
    )
    if modules:
        training = TrainingConfig.from_flat(modules=modules).to_stored()
        (folder / "config.json").write_text(json.dumps({"training": training}))
    return folder


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return make_model(folder, modules=[MODULE, "mine"], **TINY)


@pytest.fixture
def open_page(monkeypatch):
    def open_page(model_dir):
        monkeypatch.setattr("sys.argv", ["playground", str(model_dir), "3"])
        page = AppTest.from_file(playground.__file__, default_timeout=60).run()
        assert not page.exception
        return page

    return open_page


def ask(page, question):
    page.text_input(key="question").set_value(question)
    page.main.button[0].click().run()
    assert not page.exception


def texts(elements):
    """Returns the texts of elements without Markdown's backslashes."""
    return [each.value.replace("\\", "") for each in elements]


@pytest.mark.slow
def test_a_question_gets_answers_attention_and_roles(open_page, model_dir):
    page = open_page(model_dir)
    assert not page.tabs
    ask(page, " 2*x + 3*x ")
    assert texts(page.main.markdown) == ["**2*x + 3*x**"]
    generator = Generator(load_model(model_dir), BeamSampler(3))
    [best] = generator.answer(["2*x + 3*x"])
    bars = [bar.proto.text.replace("\\", "") for bar in page.get("progress")]
    assert bars == [
        f"{answer.text or '(nothing)'} ({100 * math.exp(answer.log_prob):.3g}%)"
        for answer in (best, *best.alternatives)
    ]
    assert len(bars) == 3
    frames = [tab.get("iframe")[0].proto.srcdoc for tab in page.tabs]
    assert '"question": "2*x + 3*x"' in frames[ATTENTION]
    assert "layer 2, head 1" in frames[ROLES]
    for choice, value in (("layer_roles", 1), ("head_attention", 2)):
        page.selectbox(key=choice).set_value(value).run()
    frames = [tab.get("iframe")[0].proto.srcdoc for tab in page.tabs]
    assert "layer 1, head 1" in frames[ROLES]
    expected = attention_weights(load_model(model_dir), "2*x + 3*x", best.text)[
        "weights"
    ]["encoder"][1][1]
    assert (
        f'"weights": {{"encoder": [[{json.dumps(expected)}]]}}'
        in frames[ATTENTION]
    )


@pytest.mark.slow
def test_an_example_is_asked_with_its_right_answer(open_page, model_dir):
    page = open_page(model_dir)
    # Modules without a generator are left out.
    assert page.sidebar.selectbox[0].options == [MODULE]
    others, *_, example = page.sidebar.button
    example.click().run()
    question, answer = playground.examples(MODULE, 0)[2]
    assert page.text_input(key="question").value == question
    assert texts(page.main.markdown) == [f"**{question}**"]
    assert texts(page.main.caption)[-1].endswith(f": {answer}")
    others.click().run()
    labels = [button.label.replace("\\", "") for button in page.sidebar.button]
    assert labels[1:] == [q for q, _ in playground.examples(MODULE, 1)]
    assert question not in labels
    # The right answer to a typed question is unknown.
    ask(page, "1")
    assert len(page.main.caption) == 1


def test_a_refused_question_shows_one_line(open_page, model_dir):
    page = open_page(model_dir)
    for question in ("", "  ", "What is 5% of :100:?", "1" * 161):
        ask(page, question)
        [error] = texts(page.error)
        assert "\n" not in error
        assert not page.tabs
    ask(page, "1")
    assert not page.error
    assert len(page.tabs) == 2


@pytest.mark.parametrize(
    ("preset", "fields", "attention", "roles"),
    [
        (
            "lstm",
            {"hidden_dim": 8, "max_answer_length": 2},
            "SimpleLSTM",
            "SimpleLSTM",
        ),
        (
            "tp_transformer_multi_linear",
            {**TINY, "num_layers": 1, "binding": "none"},
            "attention has no weights",
            "binds to no roles",
        ),
    ],
)
def test_a_missing_part_is_one_line(
    open_page, tmp_path, preset, fields, attention, roles
):
    page = open_page(make_model(tmp_path, preset, **fields))
    assert len(page.sidebar.info) == 1
    ask(page, "1")
    assert page.get("progress")
    for tab, name in zip(page.tabs, (attention, roles), strict=True):
        [info] = texts(tab.info)
        assert name in info
        assert not tab.get("iframe")


def test_a_damaged_folder_shows_one_line(open_page, tmp_path):
    (tmp_path / "config.json").write_text("{")
    [error] = texts(open_page(tmp_path).error)
    assert str(tmp_path) in error

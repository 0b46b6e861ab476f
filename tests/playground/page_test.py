"""What the page shows, without a browser."""

import pathlib

import pytest
from streamlit.testing.v1 import AppTest

from tests.conftest import MODULE
from tests.playground.models import TINY
from tests.playground.models import make_playground
from tpt_keras.playground import playground_server
from tpt_keras.playground.playground import Playground

PAGE = pathlib.Path(playground_server.__file__).with_name("page.py")
# What each shows of a question, in the order of the tabs.
ATTENTION, ROLES = range(2)

pytestmark = pytest.mark.usefixtures("without_graphs")


@pytest.fixture(scope="module")
def playground(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    return make_playground(folder, modules=[MODULE, "mine"], **TINY)


@pytest.fixture
def open_page(monkeypatch):
    def open_page(playground):
        monkeypatch.setattr(Playground, "shown", playground)
        page = AppTest.from_file(PAGE, default_timeout=60).run()
        assert not page.exception
        return page

    return open_page


def ask(page, question):
    page.text_input(key="question").set_value(question)
    page.main.button[0].click().run()
    assert not page.exception


def texts(elements):
    """What elements say, of which a backslash is none."""
    return [each.value.replace("\\", "") for each in elements]


@pytest.mark.slow
def test_a_question_that_is_typed(open_page, playground):
    page = open_page(playground)
    assert not page.tabs
    ask(page, " 2*x + 3*x ")
    [question] = texts(page.main.markdown)
    assert question == "**2*x + 3*x**"
    bars = page.get("progress")
    shown = [bar.proto.text.replace("\\", "") for bar in bars]
    answers = playground.answers("2*x + 3*x")
    # An answer may be an empty one.
    assert shown == [f"{a or '(nothing)'} ({100 * p:.3g}%)" for a, p in answers]
    assert len(answers) == 3
    assert 1 > answers[0][1] > answers[1][1] > answers[2][1] > 0
    frames = [tab.get("iframe")[0].proto.srcdoc for tab in page.tabs]
    assert '"question": "2*x + 3*x"' in frames[ATTENTION]
    assert "layer 2, head 1" in frames[ROLES]
    page.main.selectbox[0].set_value(1).run()
    [frame] = page.tabs[ROLES].get("iframe")
    assert "layer 1, head 1" in frame.proto.srcdoc


@pytest.mark.slow
def test_examples(open_page, playground):
    page = open_page(playground)
    module = page.sidebar.selectbox[0]
    # What else was trained on, nobody here can draw.
    assert module.options == [MODULE]
    *_, example, others = page.sidebar.button
    example.click().run()
    question, answer = playground.examples(MODULE, 0)[2]
    assert page.text_input(key="question").value == question
    assert texts(page.main.markdown) == [f"**{question}**"]
    assert texts(page.main.caption)[-1] == f"The right answer: {answer}"
    others.click().run()
    labels = [button.label.replace("\\", "") for button in page.sidebar.button]
    assert labels[:-1] == [q for q, _ in playground.examples(MODULE, 1)]
    assert question not in labels
    # Asked by hand, nobody knows.
    ask(page, "1")
    assert len(page.main.caption) == 1


def test_questions_that_are_none(open_page, playground):
    page = open_page(playground)
    for question, parts in (
        ("", "is empty"),
        ("  ", "is empty"),
        ("What is 5% of :100:?", "'%' (position 9 of"),
        ("1" * 161, "161 characters"),
    ):
        ask(page, question)
        [error] = texts(page.error)
        assert parts in error
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
            {"hidden_dim": 8, "max_answer_length": 3},
            "SimpleLSTM",
            "SimpleLSTM",
        ),
        (
            "tp_transformer_multi_linear",
            {**TINY, "num_layers": 1, "binding": "none"},
            "'multi_linear' of this model has no attention weights",
            "'none' of this model has no roles",
        ),
    ],
)
def test_what_a_model_does_not_have(
    open_page, tmp_path, preset, fields, attention, roles
):
    page = open_page(make_playground(tmp_path, preset, **fields))
    [info] = texts(page.sidebar.info)
    assert "does not say which modules" in info
    ask(page, "1")
    assert page.get("progress")
    for tab, expected in zip(page.tabs, (attention, roles), strict=True):
        [info] = texts(tab.info)
        assert expected in info
        assert not tab.get("iframe")

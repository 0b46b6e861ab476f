"""The playground without a browser, and once with one."""

import concurrent.futures
import json
import pathlib
import signal
import socket

import pytest
from streamlit.testing.v1 import AppTest

from tests.browser import MARKS
from tests.browser import find
from tests.browser import find_all
from tests.browser import open_browser
from tests.browser import wait_until
from tests.conftest import MODULE
from tpt_keras.errors import UsageError
from tpt_keras.models import SequenceToSequence
from tpt_keras.playground import page
from tpt_keras.playground.playground import Playground
from tpt_keras.playground.playground import PlaygroundServer
from tpt_keras.playground.playground import trained_modules

PAGE = pathlib.Path(page.__file__)
TINY = {
    "hidden_dim": 16,
    "intermediate_dim": 16,
    "num_heads": 2,
    "num_layers": 2,
    "max_answer_length": 3,
}
# The order of the tabs.
ATTENTION, ROLES = range(2)

pytestmark = pytest.mark.usefixtures("without_graphs")


def make_playground(folder, preset="tp_transformer_tiny", modules=(), **fields):
    """Returns the `Playground` of an untrained model."""
    SequenceToSequence.from_preset(preset, **fields).save(
        folder / "model.keras"
    )
    if modules:
        training = {"data": {"modules": list(modules)}}
        (folder / "config.json").write_text(json.dumps({"training": training}))
    return Playground(folder, num_answers=3)


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
    """Returns the texts of elements without Markdown's backslashes."""
    return [each.value.replace("\\", "") for each in elements]


@pytest.mark.slow
def test_a_question_gets_answers_attention_and_roles(open_page, playground):
    page = open_page(playground)
    assert not page.tabs
    ask(page, " 2*x + 3*x ")
    assert texts(page.main.markdown) == ["**2*x + 3*x**"]
    answers = playground.answers("2*x + 3*x")
    bars = [bar.proto.text.replace("\\", "") for bar in page.get("progress")]
    assert bars == [f"{a or '(nothing)'} ({100 * p:.3g}%)" for a, p in answers]
    assert len(answers) == 3
    assert 1 > answers[0][1] > answers[1][1] > answers[2][1] > 0
    frames = [tab.get("iframe")[0].proto.srcdoc for tab in page.tabs]
    assert '"question": "2*x + 3*x"' in frames[ATTENTION]
    assert "layer 2, head 1" in frames[ROLES]
    page.main.selectbox[0].set_value(1).run()
    [frame] = page.tabs[ROLES].get("iframe")
    assert "layer 1, head 1" in frame.proto.srcdoc


@pytest.mark.slow
def test_an_example_is_asked_with_its_right_answer(open_page, playground):
    page = open_page(playground)
    # Modules without a generator are left out.
    assert page.sidebar.selectbox[0].options == [MODULE]
    *_, example, others = page.sidebar.button
    example.click().run()
    question, answer = playground.examples(MODULE, 0)[2]
    assert page.text_input(key="question").value == question
    assert texts(page.main.markdown) == [f"**{question}**"]
    assert texts(page.main.caption)[-1].endswith(f": {answer}")
    others.click().run()
    labels = [button.label.replace("\\", "") for button in page.sidebar.button]
    assert labels[:-1] == [q for q, _ in playground.examples(MODULE, 1)]
    assert question not in labels
    # The right answer to a typed question is unknown.
    ask(page, "1")
    assert len(page.main.caption) == 1


def test_a_refused_question_shows_one_line(open_page, playground):
    page = open_page(playground)
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
            {"hidden_dim": 8, "max_answer_length": 3},
            "SimpleLSTM",
            "SimpleLSTM",
        ),
        (
            "tp_transformer_multi_linear",
            {**TINY, "num_layers": 1, "binding": "none"},
            "'multi_linear'",
            "'none'",
        ),
    ],
)
def test_a_missing_part_is_one_line(
    open_page, tmp_path, preset, fields, attention, roles
):
    page = open_page(make_playground(tmp_path, preset, **fields))
    assert len(page.sidebar.info) == 1
    ask(page, "1")
    assert page.get("progress")
    for tab, name in zip(page.tabs, (attention, roles), strict=True):
        [info] = texts(tab.info)
        assert name in info
        assert not tab.get("iframe")


@pytest.mark.parametrize(
    ("config", "modules"),
    [
        (
            {
                "training": {
                    "data": {"modules": [MODULE, "numbers__gcd", "mine"]}
                }
            },
            (MODULE, "numbers__gcd"),
        ),
        # The configuration of a language model and a converted checkpoint.
        ({"training": {"data": {"text_file": "text.txt"}}}, ()),
        ({"checkpoint": "best_eval_model.pt"}, ()),
    ],
)
def test_modules_come_from_the_folder(tmp_path, config, modules):
    assert trained_modules(tmp_path) == ()
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert trained_modules(tmp_path) == modules


def test_a_damaged_folder_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError) as refusal:
        trained_modules(tmp_path)
    assert str(tmp_path) in str(refusal.value)


def test_a_taken_port_is_refused(playground):
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UsageError) as refusal:
            PlaygroundServer(playground, port)
    assert str(port) in str(refusal.value)


@pytest.mark.parametrize("mark", [pytest.param(None, marks=MARKS)])
def test_a_browser_asks_and_ctrl_c_ends_the_server(tmp_path, mark):
    playground = make_playground(tmp_path, **TINY, binding="none")
    server = PlaygroundServer(playground, port=0)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            open_browser() as browser,
            # The server needs the main thread, which receives signals.
            concurrent.futures.ThreadPoolExecutor() as pool,
        ):
            visit = pool.submit(visit_page, browser, server.address)
            visit.add_done_callback(
                lambda _: signal.raise_signal(signal.SIGINT)
            )
            with pytest.raises(KeyboardInterrupt):
                server.run()
            best_answer = visit.result()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert best_answer == playground.answers("Sort 3, *-2*.")[0][0]


def visit_page(browser, address):
    """Asks a question, waits for its attention, and returns the answer."""
    browser.get(address)
    box = "input[aria-label=Question]"
    wait_until(browser, lambda: find(browser, box), 60)
    find(browser, box).send_keys("Sort 3, *-2*.\n")
    wait_until(browser, lambda: find(browser, "iframe"), 60)
    bars = find_all(browser, "[data-testid=stProgress]")
    assert len(bars) == 3
    best_answer, _ = bars[0].text.rsplit(maxsplit=1)
    browser.switch_to.frame(find(browser, "iframe"))
    wait_until(browser, lambda: find(browser, "#matrix .heatmaplayer"), 60)
    browser.switch_to.default_content()
    origins = browser.execute_script(
        "return performance.getEntriesByType('resource')"
        ".map((entry) => new URL(entry.name).origin)"
    )
    assert set(origins) == {address}
    log = browser.get_log("browser")
    assert not [each for each in log if each["level"] == "SEVERE"]
    return best_answer

"""The page in a browser that finds nothing but this machine."""

import concurrent.futures
import signal

import pytest

from tests.browser import MARKS
from tests.browser import find
from tests.browser import find_all
from tests.browser import open_browser
from tests.browser import wait_until
from tests.playground.models import TINY
from tests.playground.models import make_playground
from tpt_keras.playground.playground_server import PlaygroundServer

pytestmark = [*MARKS, pytest.mark.usefixtures("without_graphs")]
QUESTION = "Sort 3, *-2*."


@pytest.fixture
def ctrl_c():
    """Function that does as Ctrl-C does, where that is ignored too."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, handler)


def test_a_question_and_the_end(tmp_path, ctrl_c):
    # Roles are drawn as the attention is, and would be clustered before.
    playground = make_playground(tmp_path, **TINY, binding="none")
    server = PlaygroundServer(playground, port=0)
    with (
        open_browser() as browser,
        # One process has one server, which waits for signals.
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        visit = pool.submit(ask, browser, server.address)
        visit.add_done_callback(lambda _: ctrl_c())
        with pytest.raises(KeyboardInterrupt):
            server.run()
        best_answer = visit.result()
    assert best_answer == playground.answers(QUESTION)[0][0]


def ask(browser, address):
    """Asks the question, looks at the attention, and returns the answer."""
    browser.get(address)
    box = "input[aria-label=Question]"
    wait_until(browser, lambda: find(browser, box), 60)
    find(browser, box).send_keys(f"{QUESTION}\n")
    wait_until(browser, lambda: find(browser, "iframe"), 60)
    bars = find_all(browser, "[data-testid=stProgress]")
    assert len(bars) == 3
    best_answer, probability = bars[0].text.rsplit(maxsplit=1)
    assert probability.endswith("%)")
    browser.switch_to.frame(find(browser, "iframe"))
    wait_until(browser, lambda: find(browser, "#matrix .heatmaplayer"), 60)
    assert find(browser, "#text").text.startswith(QUESTION)
    browser.switch_to.default_content()
    origins = browser.execute_script(
        "return performance.getEntriesByType('resource')"
        ".map((entry) => new URL(entry.name).origin)"
    )
    assert set(origins) == {address}
    log = browser.get_log("browser")
    assert not [each for each in log if each["level"] == "SEVERE"]
    return best_answer

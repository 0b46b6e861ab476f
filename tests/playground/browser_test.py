"""The page in a browser that finds nothing but this machine."""

import threading

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


@pytest.fixture
def playground(tmp_path):
    return make_playground(tmp_path, **TINY)


@pytest.fixture
def address(playground):
    server = PlaygroundServer(playground, port=0)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server.address
    server.stop()
    thread.join()


def test_a_question(address, playground):
    question = "Sort 3, *-2*."
    with open_browser() as browser:
        browser.get(address)
        label = "input[aria-label=Question]"
        wait_until(browser, lambda: find(browser, label), 60)
        find(browser, label).send_keys(f"{question}\n")
        wait_until(browser, lambda: find(browser, "iframe"), 60)
        [(best, _), *_] = playground.answers(question)
        bars = find_all(browser, "[data-testid=stProgress]")
        assert len(bars) == 3
        assert bars[0].text.startswith(f"{best} ")
        browser.switch_to.frame(find(browser, "iframe"))
        wait_until(browser, lambda: find(browser, "#matrix .heatmaplayer"))
        assert find(browser, "#text").text.startswith(question)
        browser.switch_to.default_content()
        hosts = browser.execute_script(
            "return performance.getEntriesByType('resource')"
            ".map((entry) => new URL(entry.name).origin)"
        )
        assert set(hosts) == {address}
        log = browser.get_log("browser")
        assert not [each for each in log if each["level"] == "SEVERE"]

"""The pages of attention and roles, one of them in a real browser."""

import json
import shutil

import numpy as np
import pytest

from tpt_keras.files import write_text
from tpt_keras.visualization.attention import ATTENTIONS
from tpt_keras.visualization.attention import attention_page
from tpt_keras.visualization.roles import role_page

BROWSER, DRIVER = map(shutil.which, ("chromium", "chromedriver"))


@pytest.fixture
def browser():
    """Headless Chromium that can reach only files and this machine."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--window-size=1200,900",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost",
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(DRIVER)
    browser = webdriver.Chrome(options=options, service=service)
    yield browser
    browser.quit()


def problem_of(question, answer):
    """A problem whose weights all differ."""
    characters = {"question": f"⊢{question}⊣", "answer": f"⊢{answer}"}
    weights = {}
    for name, (_, targets, sources) in ATTENTIONS.items():
        layer, head, target, source = np.ogrid[
            :3, :2, : len(characters[targets]), : len(characters[sources])
        ]
        weights[name] = (
            0.2 * layer + 0.1 * head + 0.01 * target + 0.001 * source
        ).tolist()
    problem = {"question": question, "answer": answer}
    return {**problem, "characters": characters, "weights": weights}


@pytest.mark.slow
@pytest.mark.skipif(
    not (BROWSER and DRIVER),
    reason="needs Debian's packages chromium and chromium-driver",
)
def test_attention_shows_the_hovered_weight(browser, tmp_path):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.support.ui import Select

    def find(selector):
        return browser.find_element("css selector", selector)

    def assert_hovered(target, source, expected):
        row = find(f"#matrix tr:nth-child({target + 2})")
        square = row.find_elements("css selector", "td")[source]
        ActionChains(browser).move_to_element(square).perform()
        assert find("#hovered").text == expected

    path = tmp_path / "attention.html"
    problems = [problem_of("1</script>&2", "34"), problem_of("7/8", "0.875")]
    shown = {"attention": "encoder", "layer": 2, "head": 1}
    write_text(path, attention_page(problems, shown))
    browser.get(path.as_uri())
    # The chosen head, and characters of markup.
    assert_hovered(2, 12, "< (3) attends to 2 (13): 0.532")
    Select(find("#head")).select_by_visible_text("1")
    assert_hovered(2, 11, "< (3) attends to & (12): 0.431")
    Select(find("#layer")).select_by_visible_text("1")
    Select(find("#problem")).select_by_visible_text("7/8")
    Select(find("#attention")).select_by_index(2)
    assert "0.875" in find("#text").text
    assert_hovered(3, 2, "8 (4) attends to / (3): 0.032")
    # The page loads nothing and logs no error.
    loaded = "return performance.getEntriesByType('resource').length"
    assert browser.execute_script(loaded) == 0
    assert browser.get_log("browser") == []


def test_a_page_of_roles_holds_its_texts_and_clusters():
    clusters = [
        {
            "cluster": number,
            "size": size,
            "characters": [[character, size]],
            "contexts": [[f"[{character}]", 1]],
        }
        for number, size, character in ((0, 3, "</script>"), (1, 2, "b"))
    ]
    texts, labels = ["<b<", "b<"], [[0, 1, 0], [1, 0]]
    page = role_page(texts, labels, clusters, "A title", "A summary")
    assert page.count("</script>") == 1
    [line] = [line for line in page.splitlines() if "const data = " in line]
    data = json.loads(line.partition("const data = ")[2].rstrip(";"))
    assert (data["texts"], data["labels"]) == (texts, labels)
    assert data["clusters"] == clusters
    assert (data["title"], data["summary"]) == ("A title", "A summary")
    assert data["colors"][0] != data["colors"][1]

"""The pages of attention and roles, one of them in a real browser."""

import json

import pytest

from tests.browser import NEEDS_BROWSER
from tests.browser import find
from tests.browser import find_all
from tests.browser import open_browser
from tpt_keras.files import write_text
from tpt_keras.visualization.attention import ATTENTIONS
from tpt_keras.visualization.attention import attention_page
from tpt_keras.visualization.roles import role_page


@pytest.fixture
def browser():
    with open_browser() as browser:
        yield browser


def hover(browser, element, x=0, y=0):
    """Moves the mouse to an offset from an element's centre."""
    from selenium.webdriver import ActionChains

    chain = ActionChains(browser)
    chain.move_to_element_with_offset(element, x, y).perform()


def assert_alone(browser):
    """Asserts that the page loads nothing and logs no error."""
    loaded = "return performance.getEntriesByType('resource').length"
    assert browser.execute_script(loaded) == 0
    assert browser.get_log("browser") == []


def weights(num_targets, num_sources, layer, head):
    """Returns weights that all differ."""
    return [
        [
            round(0.2 * layer + 0.1 * head + 0.01 * target + 0.001 * source, 4)
            for source in range(num_sources)
        ]
        for target in range(num_targets)
    ]


@pytest.mark.slow
@NEEDS_BROWSER
def test_attention_shows_the_hovered_weight(browser, tmp_path):
    from selenium.webdriver.support.ui import Select

    problems = [
        {
            "question": question,
            "answer": answer,
            "characters": {"question": f"⊢{question}⊣", "answer": f"⊢{answer}"},
        }
        for question, answer in (("1</script>&2", "34"), ("7/8", "0.875"))
    ]
    for problem in problems:
        lengths = {k: len(v) for k, v in problem["characters"].items()}
        problem["weights"] = {
            name: [
                [
                    weights(lengths[t], lengths[s], layer, head)
                    for head in range(2)
                ]
                for layer in range(3)
            ]
            for name, t, s in (
                (name, targets, sources)
                for name, (_, targets, sources) in ATTENTIONS.items()
            )
        }
    path = tmp_path / "attention.html"
    shown = {"attention": "encoder", "layer": 2, "head": 1}
    write_text(path, attention_page(problems, shown))
    browser.get(path.as_uri())

    def assert_hovered(target, source, expected):
        [row] = find_all(browser, f"#matrix tr:nth-child({target + 2})")
        hover(browser, row.find_elements("css selector", "td")[source])
        assert find(browser, "#hovered").text == expected

    # The chosen head, and characters of markup.
    assert_hovered(2, 12, "< (3) attends to 2 (13): 0.532")
    Select(find(browser, "#head")).select_by_visible_text("1")
    assert_hovered(2, 11, "< (3) attends to & (12): 0.431")
    Select(find(browser, "#layer")).select_by_visible_text("1")
    Select(find(browser, "#problem")).select_by_visible_text("7/8")
    Select(find(browser, "#attention")).select_by_index(2)
    assert "0.875" in find(browser, "#text").text
    assert_hovered(3, 2, "8 (4) attends to / (3): 0.032")
    assert_alone(browser)


def data_in(page):
    """The JSON in a page's script."""
    [line] = [line for line in page.splitlines() if "const data = " in line]
    return json.loads(line.partition("const data = ")[2].rstrip(";"))


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
    data = data_in(page)
    assert (data["texts"], data["labels"]) == (texts, labels)
    assert data["clusters"] == clusters
    assert (data["title"], data["summary"]) == ("A title", "A summary")
    assert data["colors"][0] != data["colors"][1]

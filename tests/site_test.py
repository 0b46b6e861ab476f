"""The site of the documentation builds without a warning and loads no page."""

import html.parser
import pathlib
import re
import subprocess
import sys

import pytest

import tpt_keras
from tests.browser import NEEDS_BROWSER
from tests.browser import find
from tests.browser import find_all
from tests.browser import open_browser
from tests.browser import wait_until

ROOT = pathlib.Path(tpt_keras.__file__).parents[1]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    # As the command `report` may have left it there; git ignores it.
    report = ROOT / "report.md"
    is_new = not report.exists()
    report.touch()
    try:
        subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)
    finally:
        if is_new:
            report.unlink()
    return folder


class Loaded(html.parser.HTMLParser):
    """Collects the addresses of what a page loads."""

    def __init__(self, path):
        super().__init__()
        self.addresses = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag != "a":
            self.addresses += [attrs.get("src"), attrs.get("srcset")]
        if tag == "link":
            self.addresses.append(attrs["href"])


def test_pages_load_only_files_of_the_site(site):
    # The page for a missing address is for servers.
    pages = sorted(set(site.rglob("*.html")) - {site / "404.html"})
    assert {"index.html", "gallery.html", "layers.html"} <= {
        page.name for page in pages
    }
    for page in pages:
        for address in filter(None, Loaded(page).addresses):
            path = address.partition("?")[0]
            assert (page.parent / path).exists(), (page, address)
    for style in site.rglob("*.css"):
        assert not re.search(
            r"(url\(|@import)\W*(https?:)?//", style.read_text()
        )


def test_the_api_shows_docstrings(site):
    text = (site / "api" / "layers.html").read_text()
    binding = "bindings.hadamard_binding.HadamardBinding"
    assert f'id="tpt_keras.layers.{binding}"' in text


@NEEDS_BROWSER
def test_search_works_from_the_disk(site):
    with open_browser() as browser:
        browser.get((site / "docs" / "variants.html").as_uri())
        find(browser, "input.md-search__input").send_keys("hadamard")
        found = ".md-search-result__item a"
        wait_until(browser, lambda: find_all(browser, found))
        address = find(browser, found).get_attribute("href")
        assert address.startswith(site.as_uri())
        loaded = "return performance.getEntriesByType('resource')"
        for each in browser.execute_script(loaded):
            assert each["name"].startswith(("file:", "data:", "blob:")), each
        assert browser.get_log("browser") == []

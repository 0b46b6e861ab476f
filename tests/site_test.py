"""The site of the documentation builds without a warning and loads no page."""

import html.parser
import re
import subprocess
import sys

import pytest

from tests.experiments.command import ROOT


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


@pytest.mark.slow
def test_pages_load_only_files_of_the_site(tmp_path):
    pytest.importorskip("mkdocs")
    command = ["mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    # As the command `report` may have left it there; git ignores it.
    report = ROOT / "report.md"
    is_new = not report.exists()
    report.touch()
    try:
        command = [sys.executable, "-m", *command]
        subprocess.run(command, cwd=ROOT, check=True, timeout=600)
    finally:
        if is_new:
            report.unlink()
    # The page for a missing address is for servers.
    pages = sorted(set(tmp_path.rglob("*.html")) - {tmp_path / "404.html"})
    assert {"index.html", "serving.html"} <= {page.name for page in pages}
    for page in pages:
        for address in filter(None, Loaded(page).addresses):
            path = address.partition("?")[0]
            assert (page.parent / path).exists(), (page, address)
    for style in tmp_path.rglob("*.css"):
        loaded = r"(url\(|@import)\W*(https?:)?//"
        assert not re.search(loaded, style.read_text())
    text = (tmp_path / "api" / "layers.html").read_text()
    assert re.search(r'id="tpt_keras\.layers\.[\w.]+\.HadamardBinding"', text)

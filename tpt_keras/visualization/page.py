"""Tables in Markdown, and pages of HTML that need no other file."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

_PAGES = pathlib.Path(__file__).parent / "pages"


def page(name: str, data: dict[str, Any]) -> str:
    """Fills the template `pages/<name>.html` with data, and returns its text.

    The data is made of dicts, lists, strings and numbers.
    """
    # A "</script>" in the data would end the page's script.
    values = json.dumps(data).replace("<", "\\u003c")
    text = (_PAGES / f"{name}.html").read_text(encoding="utf-8")
    style = (_PAGES / "style.css").read_text(encoding="utf-8")
    return text.replace("__STYLE__", style).replace("__DATA__", values)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown.

    Args:
        header: List of strings.
        rows: List of lists of as many strings.
    """
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
        for row in (header, rule, *rows)
    )

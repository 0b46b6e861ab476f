"""Common parts of figures, pages and tables, without matplotlib."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from tpt_keras.files import whole_file

# Okabe and Ito's colours, which readers who see fewer of them tell apart,
# without yellow and black.
OKABE_ITO = (
    *("#0072B2", "#D55E00", "#009E73"),
    *("#CC79A7", "#E69F00", "#56B4E9"),
)
# The text of a character.
CHARACTER: dict[str, Any] = {
    "family": "monospace",
    "fontsize": 9,
    "parse_math": False,
}
_PAGES = pathlib.Path(__file__).parent / "pages"


def finished(figure, path):
    """Writes a figure atomically, if there is a path, and returns it."""
    if path is not None:
        with whole_file(path) as partial:
            figure.savefig(partial)
    return figure


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
    """Returns a table in Markdown, of the header's strings and the rows'."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
        for row in (header, rule, *rows)
    )

import json
import pathlib

from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file

_PAGES = pathlib.Path(__file__).parent / "pages"


def page(name, data, library=""):
    """A page of HTML that needs no other file and no network.

    Args:
        name: Name of the page, a file of `pages/`.
        data: What it shows, of dicts, lists, strings and numbers.
        library: JavaScript that it draws with.

    Returns:
        The page's text, for `write_page`.
    """
    # What would end the script that the data stand in.
    values = json.dumps(data).replace("<", "\\u003c")
    text = (_PAGES / f"{name}.html").read_text(encoding="utf-8")
    return text.replace("__DATA__", values).replace("__LIBRARY__", library)


def write_page(text, path):
    """Writes a page into a file.

    Args:
        text: What `page` returned.
        path: HTML file to write.
    """
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def plotly_library():
    """The JavaScript of plotly, for `page`.

    Raises:
        UsageError: If plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise UsageError(
            "The page is drawn with plotly, which is not installed. Install "
            "it with: pip install 'tpt_keras[analysis]'"
        ) from error
    return get_plotlyjs()

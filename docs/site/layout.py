"""Lays the site out as the repository, so that its links hold in both.

MkDocs takes pages from one folder. These are files of the whole repository at
their own paths, and a page of the API for each folder of the package.
"""

import pathlib
import re

from mkdocs.structure.files import File

_ROOT = pathlib.Path(__file__).parents[2]
_FILES = (
    "*.md",
    "CITATION.cff",
    "LICENSE",
    "docs/*.md",
    "docs/*.png",
    "saved_models/*/README.md",
)
# A page in Streamlit's own form, which nothing imports.
_WITHOUT_API = ("playground",)


def on_files(files, config):
    """Adds the files of the repository and the pages of the API."""
    for pattern in _FILES:
        for path in sorted(_ROOT.glob(pattern)):
            uri = path.relative_to(_ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    for uri, content in _api_pages():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown, page, **kwargs):
    """Sets a list apart from the line above it, which Markdown here needs."""
    if page.file.src_uri == "CHANGELOG.md":
        markdown = re.sub(r"^(\w.*)\n- ", r"\1\n\n- ", markdown, flags=re.M)
    return markdown


def _api_pages():
    package = _ROOT / "tpt_keras"
    for path in sorted(package.glob("*/__init__.py")):
        name = path.parent.name
        if name not in _WITHOUT_API:
            yield _api_page(f"tpt_keras.{name}", name)
    modules = sorted(package.glob("[a-z]*.py"))
    yield _api_page(
        "tpt_keras", "tpt_keras", [f"tpt_keras.{path.stem}" for path in modules]
    )


def _api_page(title, name, modules=None):
    shown = "\n\n".join(f"::: {module}" for module in modules or [title])
    return f"api/{name}.md", f"# {title}\n\n{shown}\n"

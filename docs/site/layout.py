"""Lays the site out as the repository, so that its links hold in both.

MkDocs takes pages from one folder. These are files of the whole repository at
their own paths, notebooks among them, and a page of the API for each folder of
the package.
"""

import base64
import json
import pathlib
import re

from mkdocs.structure.files import File

_ROOT = pathlib.Path(__file__).parents[2]
_FILES = (
    "[A-Z]*.md",  # a command may have written another one
    "CITATION.cff",
    "LICENSE",
    "docs/*.md",
    "docs/*.png",
    "saved_models/*/README.md",
)
# The modules that a page of the API starts with, before the others by name.
_FIRST = (
    "tp_multi_head_attention",
    "cells",
    "mechanisms",
    "bindings",
    "transformer",
    "sequence_to_sequence",
    "presets",
    "generator",
    "task",
    "character_tokenizer",
    "train",
    "config",
    "tune",
)


class _Notebook(File):
    """A notebook, whose content is given as Markdown."""

    def is_documentation_page(self):
        """Returns `True`, because MkDocs knows only Markdown's suffixes."""
        return True


def on_files(files, config):
    """Adds the files of the repository and the pages of the API."""
    for pattern in _FILES:
        for path in sorted(_ROOT.glob(pattern)):
            uri = path.relative_to(_ROOT).as_posix()
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    for path in sorted(_ROOT.glob("docs/notebooks/*.ipynb")):
        uri = path.relative_to(_ROOT).as_posix()
        content, pictures = _notebook_page(path)
        files.append(_Notebook.generated(config, uri, content=content))
        for name, picture in pictures.items():
            uri = f"docs/notebooks/{name}"
            files.append(File.generated(config, uri, content=picture))
    for uri, content in _api_pages():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown, page, **kwargs):
    """Sets a list apart from the line above it, which Markdown here needs."""
    if page.file.src_uri == "CHANGELOG.md":
        markdown = re.sub(r"^(\w.*)\n- ", r"\1\n\n- ", markdown, flags=re.M)
    return markdown


def _notebook_page(path):
    """Returns a notebook as Markdown, and a dict of its pictures by name."""
    parts, pictures = [], {}
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{path.stem}_{cell['id']}.png"
                pictures[name] = base64.b64decode(data["image/png"])
                parts.append(f"![{cell['metadata']['alt']}]({name})")
            else:
                text = "".join(output.get("text") or data["text/plain"])
                fence = "``` {.text .no-copy .output}"
                parts.append(f"{fence}\n{text.rstrip()}\n```")
    return "\n\n".join(parts), pictures


def _api_pages():
    package = _ROOT / "tpt_keras"
    for path in sorted(package.glob("*/__init__.py")):
        room = path.parent
        modules = {each.parent.name for each in room.glob("*/__init__.py")}
        modules |= {each.stem for each in room.glob("[a-z]*.py")}
        yield _api_page(f"tpt_keras.{room.name}", room.name, modules)
    modules = {path.stem for path in package.glob("[a-z]*.py")}
    yield _api_page("tpt_keras", "tpt_keras", modules)


def _api_page(package, name, modules):
    """A page of a package's own docstring and then of each module's."""
    first = [module for module in _FIRST if module in modules]
    parts = [f"::: {package}\n    options: {{show_submodules: false}}"]
    parts += [
        f"::: {package}.{module}\n"
        "    options: {show_root_heading: true, show_root_toc_entry: true}"
        for module in [*first, *sorted(modules - set(first))]
    ]
    return f"api/{name}.md", "\n\n".join([f"# {package}", *parts]) + "\n"

"""Executes the notebooks of this folder in place: `make notebooks`.

It also writes what all of them share: the cell that installs the package and,
once the repository has a public address, the link that opens one in Colab.
"""

import base64
import io
import pathlib
import sys

import nbclient
import nbformat
import PIL.Image

FOLDER = pathlib.Path(__file__).parent
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# The public address, "https://github.com/<owner>/<name>". A release sets it.
REPOSITORY = ""
# The extras that a notebook needs besides `analysis`.
EXTRAS = {"checkpoint_to_serving": ",serving,torch"}
_INSTALL = """\
# Installs the package where it is missing.
import importlib.util
import pathlib
import sys

if importlib.util.find_spec("tpt_keras") is None:
{clone}    %pip install --quiet "../..[{extras}]"
    # The clone also has the trained solver.
    sys.path.insert(0, str(pathlib.Path("../..").resolve()))"""
_CLONE = """\
    !git clone --quiet --depth=1 {repository} tpt_keras
    %cd tpt_keras/docs/notebooks
"""
_COLORS = 128


def read(path):
    """Reads a notebook."""
    return nbformat.read(path, as_version=4)


def shared_cells(name, repository):
    """Returns the sources of the cells that all notebooks share, by id."""
    clone = _CLONE.format(repository=repository) if repository else ""
    extras = f"analysis{EXTRAS.get(name, '')}"
    install = _INSTALL.format(clone=clone, extras=extras)
    if not repository:
        return {"install": install}
    place = repository.removeprefix("https://github.com/")
    address = f"{place}/blob/main/docs/notebooks/{name}.ipynb"
    colab = f"https://colab.research.google.com/github/{address}"
    return {"colab": f"[Open in Colab]({colab})", "install": install}


def share_cells(notebook, name, repository=REPOSITORY):
    """Writes the shared cells behind a notebook's title."""
    title, *cells = notebook.cells
    shared = shared_cells(name, repository)
    notebook.cells = [
        title,
        *(
            nbformat.v4.new_code_cell(source, id=key)
            if key == "install"
            else nbformat.v4.new_markdown_cell(source, id=key)
            for key, source in shared.items()
        ),
        *(cell for cell in cells if cell.id not in ("colab", "install")),
    ]


def execute(notebook):
    """Executes a notebook. An error of a cell is raised."""
    client = nbclient.NotebookClient(
        notebook,
        timeout=600,
        coalesce_streams=True,
        # Times would differ in every run.
        record_timing=False,
        # TensorFlow writes lines about this machine's processor.
        extra_arguments=["--IPKernelApp.capture_fd_output=False"],
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()


def compress_pictures(notebook):
    """Reduces the colours of the pictures, to a third of their size."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                png = base64.b64decode(output.data["image/png"])
                picture = PIL.Image.open(io.BytesIO(png)).convert("RGB")
                compressed = io.BytesIO()
                picture.quantize(_COLORS, dither=PIL.Image.Dither.NONE).save(
                    compressed, "png", optimize=True
                )
                png = base64.b64encode(compressed.getvalue())
                output.data["image/png"] = png.decode()


def main():
    for path in NOTEBOOKS:
        print(f"{path.name} ...", file=sys.stderr)
        notebook = read(path)
        metadata = dict(notebook.metadata)
        share_cells(notebook, path.stem)
        execute(notebook)
        compress_pictures(notebook)
        # A kernel adds the versions of this machine.
        notebook.metadata = nbformat.from_dict(metadata)
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()

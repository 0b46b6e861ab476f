"""The notebooks run, and are stored with their outputs and nothing more."""

import json
import pathlib
import re
import runpy

import pytest

import tpt_keras

FOLDER = pathlib.Path(tpt_keras.__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
METADATA = {
    "kernelspec": {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
of_each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def execute():
    """The names of the command that executes notebooks."""
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    return runpy.run_path(str(FOLDER / "execute.py"))


@pytest.mark.slow
@of_each
def test_runs(execute, path):
    notebook = execute["read"](path)
    execute["execute"](notebook)
    texts = "".join(
        output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    )
    # Those that train or ask say how many answers are right.
    for share in re.findall(r"([\d.]+)%.* are right", texts):
        assert float(share) > 90


@of_each
def test_is_stored_with_its_outputs(path):
    text = path.read_text()
    assert len(text) < 150_000
    # No folder of the machine that executed it.
    assert not re.search(r"/(home|root|tmp|work|Users)\b", text)
    notebook = json.loads(text)
    assert notebook["metadata"] == METADATA
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [
        *range(1, len(code) + 1)
    ]
    outputs = [output for cell in code for output in cell["outputs"]]
    # Neither errors nor warnings.
    kinds = {(each["output_type"], each.get("name")) for each in outputs}
    assert kinds <= {
        ("stream", "stdout"),
        ("display_data", None),
        ("execute_result", None),
    }
    for cell in code:
        pictures = [
            o for o in cell["outputs"] if "image/png" in o.get("data", {})
        ]
        # A picture is described for readers who do not see it.
        assert bool(pictures) == bool(cell["metadata"].get("alt"))
        assert cell["metadata"].keys() <= {"alt"}


@of_each
def test_has_the_shared_cells(execute, path):
    notebook = execute["read"](path)
    cells = [dict(cell) for cell in notebook.cells]
    execute["share_cells"](notebook, path.stem)
    sources = [(cell.id, cell.source) for cell in notebook.cells]
    assert sources == [(cell["id"], cell["source"]) for cell in cells]


def test_a_public_address(execute):
    path = NOTEBOOKS[0]
    notebook = execute["read"](path)
    count = len(notebook.cells)
    for _ in range(2):
        execute["share_cells"](
            notebook, path.stem, "https://github.com/someone/tpt_keras"
        )
    colab, install = notebook.cells[1:3]
    assert len(notebook.cells) == count + 1
    assert colab.source.endswith(
        "(https://colab.research.google.com/github/someone/tpt_keras/blob/"
        f"main/docs/notebooks/{path.name})"
    )
    assert "clone" in install.source

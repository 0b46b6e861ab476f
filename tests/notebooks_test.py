"""The notebooks run, and are stored with their outputs and nothing more."""

import json
import pathlib
import re
import runpy

import pytest

import tpt_keras

FOLDER = pathlib.Path(tpt_keras.__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
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
def test_is_stored_with_its_outputs(execute, path):
    text = path.read_text()
    assert len(text) < 150_000
    # No folder of the machine that executed it.
    assert not re.search(r"/(home|root|tmp|work|Users)\b", text)
    notebook = json.loads(text)
    # Nor the versions of its packages.
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in code]
    assert counts == [*range(1, len(code) + 1)]
    for cell in code:
        # Neither errors nor warnings.
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr"
        has_picture = "image/png" in str(cell["outputs"])
        # A picture is described for readers who do not see it.
        assert has_picture == bool(cell["metadata"].get("alt"))
        assert cell["metadata"].keys() <= {"alt"}
    # The cells that all share are up to date.
    shared = execute["read"](path)
    execute["share_cells"](shared, path.stem)
    assert [cell.source for cell in shared.cells] == [
        cell.source for cell in execute["read"](path).cells
    ]


def test_a_public_address(execute):
    path = NOTEBOOKS[0]
    notebook = execute["read"](path)
    address = "https://github.com/someone/tpt_keras"
    for _ in range(2):
        execute["share_cells"](notebook, path.stem, address)
    title, colab, install, *rest = notebook.cells
    assert colab.source.endswith(
        "(https://colab.research.google.com/github/someone/tpt_keras/blob/"
        f"main/docs/notebooks/{path.name})"
    )
    assert "clone" in install.source
    assert [title, *rest] == [
        cell for cell in execute["read"](path).cells if cell.id != "install"
    ]

import json

import pytest

from tests.experiments.command import assert_refused


@pytest.fixture
def training(tmp_path):
    """Makes what a training leaves: its configuration and its metrics."""

    def make(name, module, rows):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(
            json.dumps({"training": {"data": {"modules": [module]}}})
        )
        (folder / "metrics.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
        return str(folder)

    return make


def test_draws_trainings(run, tmp_path, training):
    row = {"step": 2, "val_sequence_accuracy": 0.5}
    folders = [training("one", "m", [row]), training("two", "n", [row])]
    path = tmp_path / "curves.png"
    result = run(
        "compare", f"--model_dirs={','.join(folders)}", f"--output={path}"
    )
    assert (result.status, result.stdout) == (0, f"{path}\n")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_training_without_the_metric(run, tmp_path, training):
    folder = training("young", "m", [{"step": 1, "loss": 2.0}])
    path = tmp_path / "curves.png"
    result = run("compare", f"--model_dirs={folder}", f"--output={path}")
    assert_refused(result, "young", "val_sequence_accuracy")
    assert not path.exists()


def test_no_trainings(run):
    assert_refused(run("compare"), "--model_dirs")

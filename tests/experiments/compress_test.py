"""A compressed model in place of the folder that it was trained in."""

import json

import pytest

from tests.experiments.command import assert_refused
from tpt_keras.models.stored import load_model
from tpt_keras.models.weights import COMPRESSED_FILE


@pytest.mark.slow
def test_folder_is_one_of_a_training(run, trained_model_dir, tmp_path):
    model = f"--model={trained_model_dir}"
    result = run("compress", model, f"--compressed_dir={tmp_path}").quiet()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"config.json", COMPRESSED_FILE}
    num_bytes = (tmp_path / COMPRESSED_FILE).stat().st_size
    assert f"{num_bytes:,} bytes" in result.stdout
    left, trained = (
        json.loads((folder / "config.json").read_text())
        for folder in (tmp_path, trained_model_dir)
    )
    assert left == {**trained, "step": 60}
    config = load_model(trained_model_dir).config
    assert load_model(tmp_path).config == config

    model = f"--model={tmp_path}"
    run("evaluate", model, "--splits=interpolate").quiet()
    [row] = (tmp_path / "evaluations.jsonl").read_text().splitlines()
    row = json.loads(row)
    assert (row["examples"], row["step"]) == (60, 60)


def test_folder_of_a_training_is_refused(run, trained_model_dir):
    target = f"--compressed_dir={trained_model_dir}"
    result = run("compress", f"--model={trained_model_dir}", target)
    assert_refused(result, "model.keras")

"""A compressed model in place of the folder that it was trained in."""

import json
import shutil

import pytest

from tests.experiments.command import assert_refused
from tpt_keras.models.stored import load_model
from tpt_keras.models.weights import COMPRESSED_FILE


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return tmp_path_factory.mktemp("models") / "compressed"


@pytest.fixture
def compressed_dir(run, trained_model_dir, target):
    if not target.exists():
        result = run(
            "compress",
            f"--model_dir={trained_model_dir}",
            f"--compressed_dir={target}",
        )
        assert (result.status, result.stderr) == (0, "")
        num_bytes = (target / COMPRESSED_FILE).stat().st_size
        assert f"{num_bytes:,} bytes" in result.stdout
    return target


@pytest.mark.slow
def test_folder_has_the_weights_and_the_configuration(
    compressed_dir, trained_model_dir
):
    names = {path.name for path in compressed_dir.iterdir()}
    assert names == {"config.json", COMPRESSED_FILE}
    left, trained = (
        json.loads((folder / "config.json").read_text())
        for folder in (compressed_dir, trained_model_dir)
    )
    assert left == {**trained, "step": 60}
    config = load_model(trained_model_dir).config
    assert load_model(compressed_dir).config == config


@pytest.mark.slow
def test_commands_take_a_compressed_model(run, compressed_dir, tmp_path):
    model_dir = shutil.copytree(compressed_dir, tmp_path / "model")
    result = run("evaluate", f"--model_dir={model_dir}", "--splits=interpolate")
    assert (result.status, result.stderr) == (0, "")
    [row] = (model_dir / "evaluations.jsonl").read_text().splitlines()
    row = json.loads(row)
    assert (row["examples"], row["step"]) == (60, 60)


def test_invalid_flags_are_refused(run, tmp_path, trained_model_dir):
    for model_dir, compressed_dir, part in (
        (trained_model_dir, trained_model_dir, "model.keras"),
        (tmp_path / "none", tmp_path, "none"),
    ):
        folders = (
            f"--model_dir={model_dir}",
            f"--compressed_dir={compressed_dir}",
        )
        assert_refused(run("compress", *folders), part)


def test_damaged_file_is_refused(run, compressed_dir, tmp_path):
    content = bytearray((compressed_dir / COMPRESSED_FILE).read_bytes())
    content[len(content) // 2] ^= 0x04
    (tmp_path / COMPRESSED_FILE).write_bytes(content)
    for name, *arguments in (
        ("solve", "--question=1"),
        ("export", f"--export_dir={tmp_path / 'exported'}"),
    ):
        result = run(name, f"--model_dir={tmp_path}", *arguments)
        assert_refused(result, tmp_path)

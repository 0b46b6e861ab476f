"""Wrong input ends a command with one line that names the culprit."""

import pathlib
import shutil

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.data_generators.mathematics.datasets import dataset_builder


@pytest.fixture
def arguments(place_value_data, trained_model_dir, tmp_path):
    """A command line of each command, which the flags of a test change."""
    data = (f"--modules={MODULE}", f"--data_dir={place_value_data}")
    model = f"--model_dir={trained_model_dir}"
    return {
        "evaluate": [model],
        "export": [model, f"--export_dir={tmp_path / 'new'}"],
        "quiz": [model, *data],
        "solve": ["--question=1 + 1"],
        "train": [f"--model_dir={tmp_path / 'new'}", *data],
    }


@pytest.mark.parametrize(
    ("name", "flags", "parts"),
    [
        ("train", "--hparams=binding=glue", ["'glue'", "hadamard"]),
        ("train", "--batch_size=-1", ["--batch_size"]),
        ("train", "--data_dir=nothing", ["nothing", MODULE, "prepare_data"]),
        ("evaluate", "--splits=", ["--splits"]),
        ("evaluate", "--model_dir=nothing", ["nothing"]),
        ("solve", "--saved_model=nothing", ["nothing"]),
        ("export", "--export_dir=/sys/new", ["/sys/"]),
    ],
)
def test_refusal(run, arguments, tmp_path, name, flags, parts):
    result = run(name, *arguments[name], *flags.split())
    assert_refused(result, *parts)
    assert not (tmp_path / "new").exists()


def test_damaged_data(run, arguments, place_value_data, tmp_path):
    data_dir = shutil.copytree(place_value_data, tmp_path / "data")
    builder = dataset_builder(MODULE, data_dir)
    path = pathlib.Path(builder.info.splits["interpolate"].filepaths[0])
    path.write_bytes(path.read_bytes().replace(b"What", b"Whet", 4))
    result = run("quiz", *arguments["quiz"], f"--data_dir={data_dir}")
    assert_refused(result, data_dir, MODULE, "prepare")

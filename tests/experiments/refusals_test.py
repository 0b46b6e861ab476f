"""Wrong input ends a command with one line that names the culprit."""

import json
import pathlib
import shutil

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.data_generators.mathematics.datasets import dataset_builder

TINY_TRAINING = (
    "--preset=tp_transformer_tiny",
    "--hparams=hidden_dim=16,intermediate_dim=32,num_heads=2,num_layers=1",
    "--train_steps=2",
    "--steps_per_checkpoint=2",
    "--steps_per_evaluation=2",
    "--validation_examples=20",
)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("evaluate", "--model_dir"),
        ("export", "--export_dir"),
        ("prepare_data", "--modules"),
        ("quiz", "--saved_model"),
        ("solve", "--saved_model"),
        ("train", "--model_dir"),
        ("tune", "--tuning_dir"),
    ],
)
def test_missing_or_unknown_flag(run, name, flag):
    assert_refused(run(name), flag)
    assert_refused(run(name, "--nothing=1"), "nothing")


def test_argument_that_is_no_flag(run, tmp_path):
    result = run("train", f"--model_dir={tmp_path}", "something")
    assert_refused(result, "'something'")


@pytest.fixture
def arguments(place_value_data, trained_model_dir, saved_model, tmp_path):
    """A command line of each command, which the flags of a test change."""
    data = (f"--modules={MODULE}", f"--data_dir={place_value_data}")
    model = f"--model_dir={trained_model_dir}"
    return {
        "evaluate": [model],
        "export": [model, f"--export_dir={tmp_path / 'new'}"],
        "prepare_data": [
            f"--modules={MODULE}",
            f"--data_dir={tmp_path / 'new'}",
        ],
        "quiz": [f"--saved_model={saved_model}", *data],
        "solve": ["--question=1 + 1"],
        "train": [f"--model_dir={tmp_path / 'new'}", *data],
        "compare": [f"--model_dirs={trained_model_dir}"],
    }


@pytest.mark.parametrize(
    ("name", "flags", "parts"),
    [
        ("train", "--preset=tp_transformr", ["preset", "'tp_transformr'"]),
        (
            "train",
            "--preset=tp_transformer_mathematics",
            ["--preset", "--init_from"],
        ),
        ("train", "--modules=numbers__nothing", ["numbers__nothing", MODULE]),
        ("train", "--modules=", ["--modules"]),
        ("train", "--hparams=hidden=3", ["'hidden'", "hidden_dim"]),
        ("train", "--hparams=binding=glue", ["'glue'", "hadamard"]),
        ("train", "--train_steps=some", ["train_steps", "some"]),
        ("train", "--batch_size=-1", ["--batch_size"]),
        ("train", "--validation_examples=600", ["600", MODULE]),
        ("train", "--module_weights=numbers__gcd=2", ["numbers__gcd", MODULE]),
        ("train", "--init_from=nothing --validation_examples=20", ["nothing"]),
        ("train", "--distribution=ring", ["distribution", "'ring'"]),
        ("train", "--distribution=multi_worker_mirrored", ["TF_CONFIG"]),
        ("train", "--num_gpus=99", ["num_gpus"]),
        ("train", "--num_gpus=0 --logical_cpus=0", ["logical_cpus"]),
        ("train", "--data_dir=nothing", ["nothing", "tpt_keras prepare_data"]),
        ("evaluate", "--splits=interpolat", ["split", "'interpolat'"]),
        ("evaluate", "--splits=", ["--splits"]),
        ("evaluate", "--modules=numbers__gcd", ["prepare_data --modules="]),
        ("evaluate", "--batch_size=0", ["--batch_size"]),
        ("evaluate", "--model_dir=nothing", ["nothing"]),
        ("evaluate", "--model_dir=nothing --best", ["nothing"]),
        ("prepare_data", "--train_examples=0", ["--train_examples"]),
        ("prepare_data", "--num_workers=0", ["--num_workers"]),
        ("export", "--beam_width=0", ["beam_width", "0"]),
        ("export", "--max_answer_length=0", ["--max_answer_length", "0"]),
        ("export", "--precision=float16", ["'float16'", "bfloat16, float32"]),
        ("export", "--model_dir=nothing", ["nothing"]),
        ("solve", "--saved_model=nothing", ["nothing", "tpt_keras export"]),
        ("solve", "--preset=nothing", ["nothing"]),
        ("solve", "--model_dir=nothing", ["--model_dir", "'nothing'"]),
        ("quiz", "--split=interpolat", ["'interpolat'"]),
        ("quiz", "--count=0", ["--count"]),
        ("quiz", "--data_dir=nothing", ["nothing", "--train_examples=3 "]),
        ("quiz", "--preset=lstm --saved_model=", ["tp_transformer_math"]),
        ("compare", "--model_dirs=nothing", ["metrics", "'nothing'"]),
        # Folders that cannot be written.
        ("export", "--export_dir=/sys/new", ["/sys/"]),
        ("prepare_data", "--data_dir=/sys/new", ["/sys/"]),
        ("compare", "--output=/sys/new.png", ["/sys/"]),
    ],
)
def test_refusal(run, arguments, tmp_path, name, flags, parts):
    result = run(name, *arguments[name], *flags.split())
    assert_refused(result, *parts)
    assert not (tmp_path / "new").exists()


def test_train_in_the_folder_of_another_training(
    run, arguments, trained_model_dir
):
    result = run(
        "train",
        *arguments["train"],
        f"--model_dir={trained_model_dir}",
        "--validation_examples=20",
    )
    assert_refused(result, trained_model_dir, "hidden_dim")


@pytest.mark.parametrize(
    ("name", "damage"),
    [("train", "record"), ("evaluate", "description"), ("quiz", "half")],
)
def test_damaged_data(run, arguments, place_value_data, tmp_path, name, damage):
    data_dir = shutil.copytree(place_value_data, tmp_path / "data")
    builder = dataset_builder(MODULE, data_dir)
    path = builder.data_path / "dataset_info.json"
    if damage == "half":
        path.unlink()
    elif damage == "description":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        (path,) = map(pathlib.Path, builder.info.splits["train_easy"].filepaths)
        path.write_bytes(path.read_bytes().replace(b"What", b"Whet", 4))
    more = TINY_TRAINING if name == "train" else ()
    result = run(name, *arguments[name], f"--data_dir={data_dir}", *more)
    assert_refused(result, data_dir, MODULE, "tpt_keras prepare_data")


def test_quiz_of_a_split_that_no_module_has(
    run, arguments, place_value_data, tmp_path
):
    data_dir = shutil.copytree(place_value_data, tmp_path / "data")
    path = dataset_builder(MODULE, data_dir).data_path / "dataset_info.json"
    info = json.loads(path.read_text())
    info["splits"] = [s for s in info["splits"] if s["name"] != "extrapolate"]
    path.write_text(json.dumps(info))
    result = run(
        "quiz",
        *arguments["quiz"],
        f"--data_dir={data_dir}",
        "--split=extrapolate",
    )
    assert_refused(result, MODULE, "'extrapolate'")

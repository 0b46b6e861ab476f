"""Wrong input ends a command with one line that names the culprit."""

import json
import os
import pathlib
import shutil

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tests.experiments.command import run_alone
from tpt_keras.data_generators.mathematics.datasets import dataset_builder

COMMANDS = (
    "evaluate",
    "export",
    "prepare_data",
    "quiz",
    "solve",
    "train",
    "tune",
)
TINY_TRAINING = (
    "--preset=tp_transformer_tiny",
    "--hparams=hidden_dim=16,intermediate_dim=32,num_heads=2,num_layers=1",
    "--train_steps=2",
    "--steps_per_checkpoint=2",
    "--steps_per_evaluation=2",
    "--validation_examples=20",
)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("argument", ["--nothing=1", "something", None])
def test_unknown_or_missing_flag(run, name, argument):
    arguments = [argument] if argument else []
    part = argument.strip("-").split("=")[0] if argument else "--"
    assert_refused(run(name, *arguments), part)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--preset=tp_transformr"], ["preset", "'tp_transformr'"]),
        (["--modules=numbers__nothing"], ["'numbers__nothing'", MODULE]),
        (["--modules="], ["--modules"]),
        (["--hparams=hidden=3"], ["'hidden'", "hidden_dim"]),
        (["--hparams=binding=glue"], ["'glue'", "hadamard"]),
        (["--schedule=linear"], ["schedule", "'linear'"]),
        (["--train_steps=some"], ["train_steps", "some"]),
        (["--warmup_steps=9", "--train_steps=9"], ["--warmup_steps"]),
        (["--batch_size=-1"], ["--batch_size"]),
        (["--validation_examples=600"], ["600", MODULE]),
        (
            ["--hparams=max_question_length=30", "--validation_examples=20"],
            [MODULE, "max_question_length"],
        ),
        (["--module_weights=numbers__gcd=2"], ["module_weights", MODULE]),
        (["--init_from=nothing", "--validation_examples=20"], ["'nothing'"]),
        (["--keep_checkpoints=0"], ["--keep_checkpoints"]),
        (["--distribution=ring"], ["distribution", "'ring'"]),
        (["--distribution=multi_worker_mirrored"], ["TF_CONFIG"]),
        (["--num_gpus=99"], ["num_gpus"]),
        (["--num_gpus=0", "--logical_cpus=0"], ["logical_cpus"]),
    ],
)
def test_train(run, place_value_data, tmp_path, arguments, parts):
    result = run(
        "train",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        f"--model_dir={tmp_path / 'model'}",
        *arguments,
    )
    assert_refused(result, *parts)
    assert not (tmp_path / "model").exists()


def test_train_in_the_folder_of_another_training(
    run, place_value_data, trained_model_dir
):
    result = run(
        "train",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        f"--model_dir={trained_model_dir}",
        "--validation_examples=20",
    )
    assert_refused(result, trained_model_dir, "hidden_dim")


@pytest.fixture
def read_with(run, trained_model_dir, saved_model, tmp_path):
    """Runs a command that reads prepared data."""

    def read_with(name, data_dir, modules, *arguments):
        model = {
            "train": f"--model_dir={tmp_path / 'model'}",
            "evaluate": f"--model_dir={trained_model_dir}",
            "quiz": f"--saved_model={saved_model}",
        }[name]
        arguments += (f"--modules={modules}", f"--data_dir={data_dir}", model)
        if name == "train":
            arguments += TINY_TRAINING
        return run(name, *arguments)

    return read_with


READERS = ("train", "evaluate", "quiz")


@pytest.mark.parametrize("name", READERS)
def test_missing_data(read_with, place_value_data, tmp_path, name):
    data_dir = tmp_path / "nothing"
    assert_refused(
        read_with(name, data_dir, MODULE), data_dir, "tpt_keras prepare_data"
    )
    missing = "numbers__gcd,numbers__lcm"
    result = read_with(name, place_value_data, f"{missing},{MODULE}")
    assert_refused(result, place_value_data, f"--modules={missing} ")


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("damage", ["half written", "description", "record"])
def test_damaged_data(read_with, place_value_data, tmp_path, name, damage):
    data_dir = shutil.copytree(place_value_data, tmp_path / "data")
    builder = dataset_builder(MODULE, data_dir)
    path = builder.data_path / "dataset_info.json"
    if damage == "half written":
        path.unlink()
    elif damage == "description":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        split = "train_easy" if name == "train" else "interpolate"
        (path,) = map(pathlib.Path, builder.info.splits[split].filepaths)
        path.write_bytes(path.read_bytes().replace(b"What", b"Whet", 4))
    result = read_with(name, data_dir, MODULE)
    assert_refused(result, data_dir, MODULE, "tpt_keras prepare_data")


def test_quiz_of_a_split_that_no_module_has(
    read_with, place_value_data, tmp_path
):
    data_dir = shutil.copytree(place_value_data, tmp_path / "data")
    path = dataset_builder(MODULE, data_dir).data_path / "dataset_info.json"
    info = json.loads(path.read_text())
    info["splits"] = [s for s in info["splits"] if s["name"] != "extrapolate"]
    path.write_text(json.dumps(info))
    result = read_with("quiz", data_dir, MODULE, "--split=extrapolate")
    assert_refused(result, MODULE, "'extrapolate'")


@pytest.mark.parametrize("name", ["evaluate", "export"])
@pytest.mark.parametrize("best", ["--best", "--nobest"])
@pytest.mark.parametrize("is_there", [False, True])
def test_folder_without_a_model(run, tmp_path, name, best, is_there):
    folder = tmp_path / "model"
    if is_there:
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    arguments = [f"--model_dir={folder}", best]
    if name == "export":
        arguments.append(f"--export_dir={tmp_path / 'export'}")
    assert_refused(run(name, *arguments), folder)
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--splits=interpolat"], ["split", "'interpolat'"]),
        (["--modules=numbers__gcd"], ["numbers__gcd", "prepare_data"]),
        (["--batch_size=0"], ["--batch_size"]),
        (["--splits="], ["--splits"]),
    ],
)
def test_evaluate(run, trained_model_dir, arguments, parts):
    result = run("evaluate", f"--model_dir={trained_model_dir}", *arguments)
    assert_refused(result, *parts)


@pytest.mark.parametrize(
    "argument",
    ["--train_examples=0", "--evaluation_examples=-5", "--num_workers=0"],
)
def test_prepare_data(run, tmp_path, argument):
    result = run(
        "prepare_data",
        f"--modules={MODULE}",
        f"--data_dir={tmp_path / 'data'}",
        argument,
    )
    assert_refused(result, argument.partition("=")[0])
    assert not (tmp_path / "data").exists()


def test_questions_without_an_answer(run, saved_model):
    questions = {
        "": "EMPTY",
        "1" * 161: "160",
        "What is 5 % 3?": "'%'",
        "two\nlines": r"'\n'",
        "\udcff": "INVALID_UTF8",
    }
    result = run(
        "solve",
        f"--saved_model={saved_model}",
        *(f"--question={question}" for question in questions),
    )
    assert_refused(result, *questions.values())


@pytest.mark.parametrize("is_there", [False, True])
def test_solve_without_a_saved_model(run, tmp_path, is_there):
    folder = tmp_path / "none"
    if is_there:
        (folder / "1").mkdir(parents=True)
    result = run("solve", f"--saved_model={folder}", "--question=1 + 1")
    assert_refused(result, folder, "tpt_keras export")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--split=interpolat"], ["'interpolat'"]),
        (["--saved_model=nothing"], ["'nothing'"]),
        (["--count=0"], ["count"]),
    ],
)
def test_quiz(run, saved_model, place_value_data, arguments, parts):
    result = run(
        "quiz",
        f"--saved_model={saved_model}",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        *arguments,
    )
    assert_refused(result, *parts)


@pytest.mark.slow
def test_nothing_comes_between_in_a_process_of_its_own(saved_model):
    assert_refused(
        run_alone("solve", f"--saved_model={saved_model}", "--question=5 % 3"),
        "'%'",
    )


def arguments_of(name, trained_model_dir, place_value_data, folder):
    """A command line that writes into a folder."""
    return {
        "compare": [
            f"--model_dirs={trained_model_dir}",
            f"--output={folder / 'curves.png'}",
        ],
        "export": [
            f"--model_dir={trained_model_dir}",
            f"--export_dir={folder / 'exported'}",
        ],
        "prepare_data": [
            f"--modules={MODULE}",
            f"--data_dir={folder / 'data'}",
            "--train_examples=600",
            "--evaluation_examples=60",
            "--num_workers=1",
        ],
        "train": [
            f"--modules={MODULE}",
            f"--data_dir={place_value_data}",
            f"--model_dir={folder / 'model'}",
            *TINY_TRAINING,
        ],
    }[name]


@pytest.mark.skipif(not os.path.isdir("/sys"), reason="needs /sys")
@pytest.mark.parametrize("name", ["compare", "export", "prepare_data", "train"])
def test_folder_that_cannot_be_written(
    run, trained_model_dir, place_value_data, name
):
    arguments = arguments_of(
        name, trained_model_dir, place_value_data, pathlib.Path("/sys")
    )
    assert_refused(run(name, *arguments), "/sys/")

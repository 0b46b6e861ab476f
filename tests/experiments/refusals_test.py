"""Bad input ends with one line that names the culprit and the way out."""

import json
import pathlib
import shutil

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tests.experiments.command import run_alone
from tpt_keras.data_generators.mathematics_modules import MODULES
from tpt_keras.data_generators.prepared_data import dataset_builder

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
QUESTION = "--question=What is the tens digit of 31859?"


@pytest.mark.parametrize("name", COMMANDS)
def test_unknown_flag(run, name):
    assert_refused(run(name, "--nothing=1"), "nothing")


@pytest.mark.parametrize("name", COMMANDS)
def test_unexpected_argument(run, name):
    assert_refused(run(name, "something"), "'something'", "--")


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_given(run, name):
    assert_refused(run(name), "--")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--preset=tp_transformr"], ["'tp_transformr'", "tp_transformer_b"]),
        (["--modules=numbers__nothing"], ["'numbers__nothing'", MODULE]),
        (["--modules="], ["--modules"]),
        (["--hparams=hidden=3"], ["'hidden'", "hidden_dim"]),
        (["--hparams=hidden_dim=many"], ["hidden_dim", "int", "'many'"]),
        (["--hparams=hidden_dim=30"], ["num_heads", "30"]),
        (["--hparams=binding=glue"], ["'glue'", "hadamard"]),
        (["--schedule=linear"], ["'linear'", "cosine"]),
        (["--train_steps=0"], ["train_steps", "0"]),
        (["--train_steps=some"], ["train_steps", "some"]),
        (["--warmup_steps=9", "--train_steps=9"], ["warmup_steps", "9"]),
        (["--batch_size=-1"], ["batch_size", "-1"]),
        (["--validation_examples=600"], ["600", MODULE]),
        (
            ["--hparams=max_question_length=30", "--validation_examples=20"],
            [MODULE, "the model takes 30", "--hparams=max_question_length="],
        ),
        (["--module_weights=1"], ["module_weights", "name=weight", "'1'"]),
        (
            ["--module_weights=numbers__gcd=2"],
            ["module of module_weights 'numbers__gcd'", MODULE],
        ),
        ([f"--module_weights={MODULE}=nan"], ["module_weights", "nan"]),
        (
            ["--init_from=nothing", "--validation_examples=20"],
            ["no model folder 'nothing'"],
        ),
        (["--optimizer=sgd"], ["'sgd'", "adam, adamw, lion, muon"]),
        (["--optimizer=adamw"], ["--weight_decay"]),
        (["--precision=float64"], ["'float64'", "mixed_bfloat16"]),
        (["--weight_decay=1.5"], ["weight_decay", "1.5"]),
        (
            ["--steps_per_checkpoint=3", "--steps_per_evaluation=7"],
            ["steps_per_evaluation", "steps_per_checkpoint", "7 and 3"],
        ),
        (["--keep_checkpoints=0"], ["keep_checkpoints", "0"]),
        (["--on_nan=ignore"], ["'ignore'", "rollback, stop"]),
        (["--max_steps_without_improvement=-1"], ["improvement", "-1"]),
        (["--evaluation_examples=-1"], ["evaluation_examples", "-1"]),
        (["--profile_steps=5"], ["profile_steps", "100,110", "5"]),
        (["--profile_steps=one,two"], ["profile_steps", "one,two"]),
        (["--gradient_accumulation_steps=0"], ["accumulation_steps", "0"]),
        (
            ["--steps_per_execution=7", "--train_steps=10"],
            ["steps_per_execution", "7", "10"],
        ),
        (
            ["--rematerialize", "--hparams=dropout=0.1"],
            ["rematerialize", "dropout"],
        ),
        (["--distribution=ring"], ["'ring'", "multi_worker_mirrored"]),
        (["--distribution=multi_worker_mirrored"], ["TF_CONFIG"]),
        (["--num_gpus=99"], ["--num_gpus=99", "machine has"]),
        (["--num_gpus=-1"], ["--num_gpus=-1"]),
        (["--num_gpus=0", "--logical_cpus=0"], ["--logical_cpus"]),
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
    assert_refused(result, trained_model_dir, "hidden_dim: 16 there, 512 here")


@pytest.fixture
def half_written_data(place_value_data, tmp_path):
    """A data folder whose dataset was not finished."""
    data_dir = tmp_path / "half"
    shutil.copytree(place_value_data, data_dir)
    path = dataset_builder(MODULE, data_dir).data_path
    (path / "dataset_info.json").unlink()
    return data_dir


READERS = ("train", "evaluate", "quiz")


@pytest.fixture
def read_with(run, trained_model_dir, saved_model, tmp_path):
    """Runs a command that reads prepared data."""

    def read_with(name, data_dir, modules):
        model = {
            "train": f"--model_dir={tmp_path / 'model'}",
            "evaluate": f"--model_dir={trained_model_dir}",
            "quiz": f"--saved_model={saved_model}",
        }[name]
        arguments = [f"--modules={modules}", f"--data_dir={data_dir}", model]
        if name == "train":
            arguments += TINY_TRAINING
        return run(name, *arguments)

    return read_with


@pytest.mark.parametrize("name", READERS)
def test_missing_data_folder(read_with, tmp_path, name):
    result = read_with(name, tmp_path / "nothing", MODULE)
    assert_refused(result, tmp_path / "nothing", "tpt_keras prepare_data")


@pytest.mark.parametrize("name", READERS)
def test_half_written_dataset(read_with, half_written_data, name):
    result = read_with(name, half_written_data, MODULE)
    assert_refused(result, half_written_data, MODULE, "tpt_keras prepare_data")


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_description(read_with, place_value_data, tmp_path, name):
    data_dir = shutil.copytree(place_value_data, tmp_path / "data")
    path = dataset_builder(MODULE, data_dir).data_path / "dataset_info.json"
    path.write_bytes(path.read_bytes()[:-100])
    result = read_with(name, data_dir, MODULE)
    assert_refused(
        result, f"dataset in {path.parent} is damaged", "prepare_data"
    )


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_record(read_with, place_value_data, tmp_path, name):
    data_dir = shutil.copytree(place_value_data, tmp_path / "data")
    split = "train_easy" if name == "train" else "interpolate"
    builder = dataset_builder(MODULE, data_dir)
    (path,) = map(pathlib.Path, builder.info.splits[split].filepaths)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"What", b"Whet", 4))
    result = read_with(name, data_dir, MODULE)
    assert_refused(result, f"file {path} is damaged", "prepare_data")
    assert "Record " in result.stderr


@pytest.mark.parametrize("name", READERS)
def test_modules_that_are_missing(read_with, place_value_data, name):
    modules = "numbers__gcd,numbers__lcm"
    result = read_with(name, place_value_data, f"{modules},{MODULE}")
    assert_refused(
        result, f"data folder '{place_value_data}'", f"--modules={modules} "
    )
    result = read_with(name, place_value_data, "numbers__place*")
    assert_refused(result, "--modules=numbers__place_value_composed ")
    result = read_with(name, place_value_data, "all")
    others = [module for module in MODULES if module != MODULE]
    assert_refused(result, f"--modules={','.join(others)} ")


def test_quiz_of_a_split_that_no_module_has(
    run, saved_model, place_value_data, tmp_path
):
    data_dir = shutil.copytree(place_value_data, tmp_path / "data")
    path = dataset_builder(MODULE, data_dir).data_path / "dataset_info.json"
    info = json.loads(path.read_text())
    info["splits"] = [s for s in info["splits"] if s["name"] != "extrapolate"]
    path.write_text(json.dumps(info))
    result = run(
        "quiz",
        f"--saved_model={saved_model}",
        f"--modules={MODULE}",
        f"--data_dir={data_dir}",
        "--split=extrapolate",
    )
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
        (["--splits=interpolat"], ["'interpolat'", "interpolate"]),
        (["--modules=numbers__nothing"], ["'numbers__nothing'", MODULE]),
        (["--modules=numbers__gcd"], ["numbers__gcd", "prepare_data"]),
        (["--batch_size=0"], ["--batch_size"]),
        (["--splits="], ["nothing to evaluate", "--splits"]),
    ],
)
def test_evaluate(run, trained_model_dir, arguments, parts):
    result = run("evaluate", f"--model_dir={trained_model_dir}", *arguments)
    assert_refused(result, *parts)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--modules=numbers__nothing"], ["'numbers__nothing'", MODULE]),
        (["--train_examples=0"], ["--train_examples"]),
        (["--evaluation_examples=-5"], ["--evaluation_examples"]),
        (["--num_workers=0"], ["--num_workers"]),
    ],
)
def test_prepare_data(run, tmp_path, arguments, parts):
    result = run(
        "prepare_data",
        f"--modules={MODULE}",
        f"--data_dir={tmp_path / 'data'}",
        *arguments,
    )
    assert_refused(result, *parts)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("", ["''", "EMPTY"]),
        ("1" * 161, ["161", "160"]),
        ("What is 5 % 3?", ["'%'", "'What is 5 % 3?'", "0123456789"]),
        ("two\nlines", [r"'\n'"]),
        ("\udcff", ["INVALID_UTF8"]),
    ],
)
def test_solve(run, saved_model, question, parts):
    result = run(
        "solve", f"--saved_model={saved_model}", f"--question={question}"
    )
    assert_refused(result, *parts)


@pytest.mark.parametrize("is_there", [False, True])
def test_solve_without_a_saved_model(run, tmp_path, is_there):
    if is_there:
        (tmp_path / "none" / "1").mkdir(parents=True)
    result = run("solve", f"--saved_model={tmp_path / 'none'}", QUESTION)
    assert_refused(result, tmp_path / "none", "tpt_keras export")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--modules=numbers__nothing"], ["numbers__nothing"]),
        (["--split=interpolat"], ["'interpolat'"]),
        (["--saved_model=nothing"], ["'nothing'", "tpt_keras export"]),
        (["--count=0"], ["--count"]),
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
def test_as_a_user_sees_it(saved_model):
    """The same, where TensorFlow's own chatter could come between."""
    assert_refused(run_alone("train", "--prest=x"), "prest")
    assert_refused(
        run_alone("solve", f"--saved_model={saved_model}", "--question=5 % 3"),
        "'%'",
    )

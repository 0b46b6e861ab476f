import json
import pathlib
import re
import shutil

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tpt_keras.data_generators.text_pairs import Pair
from tpt_keras.data_generators.text_pairs import write_pairs
from tpt_keras.files import folder_lock
from tpt_keras.models.stored import load_model
from tpt_keras.models.stored import resolve
from tpt_keras.training.state.logs import read_metrics


@pytest.fixture
def model_dir(trained_model_dir, tmp_path):
    """A folder of a trained model to write into."""
    return pathlib.Path(shutil.copytree(trained_model_dir, tmp_path / "model"))


def evaluations_of(model_dir):
    lines = (model_dir / "evaluations.jsonl").read_text().splitlines()
    return list(map(json.loads, lines))


@pytest.mark.slow
def test_a_row_for_each_model_and_split(run, model_dir):
    # While somebody trains there, too.
    with folder_lock(model_dir, "trains"):
        for flags in (["--nobest"], ["--best"]):
            run("evaluate", f"--model={model_dir}", *flags).succeeded()
    rows = evaluations_of(model_dir)
    assert [(row["model"], row["module"], row["split"]) for row in rows] == [
        (model, MODULE, split)
        for model in ("last", "best")
        for split in ("interpolate", "extrapolate")
    ]
    metrics = {row["step"]: row for row in read_metrics(model_dir)}
    best = max(m["val_sequence_accuracy"] for m in metrics.values())
    for row in rows:
        assert row["dataset"] == "mathematics_dataset"
        assert row["examples"] == 60
        if row["model"] == "best":
            assert metrics[row["step"]]["val_sequence_accuracy"] == best
        else:
            assert row["step"] == 60


def test_problems_of_a_file(run, model_dir, tmp_path):
    # Options of the training's dataset are not those of the file.
    config = json.loads((model_dir / "config.json").read_text())
    config["training"]["data"]["dataset_options"] = ["validation_problems=9"]
    (model_dir / "config.json").write_text(json.dumps(config))
    problems = [
        Pair(f"What is the tens digit of {n}?", str(n // 10 % 10), *place)
        for place in ((MODULE, "new"), ("another", "new"))
        for n in range(100, 140)
    ]
    write_pairs(tmp_path / "problems.jsonl", problems)
    result = run(
        "evaluate",
        f"--model={model_dir}",
        "--dataset=text_pairs",
        f"--data_dir={tmp_path / 'problems.jsonl'}",
        "--modules=all",
    ).quiet()
    *_, mean = result.stdout.splitlines()
    rows = evaluations_of(model_dir)
    assert mean.startswith("mean of 2 modules")
    assert f" {rows[0]['sequence_accuracy']:.2%} (" in mean
    for row in rows:
        assert (row["examples"], row["split"]) == (40, "new")
        assert row["low"] <= row["sequence_accuracy"] <= row["high"]


@pytest.mark.slow
def test_a_trained_preset(run, place_value_data):
    result = run(
        "evaluate",
        "--model=tp_transformer_mathematics",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        "--splits=interpolate",
    ).quiet()
    folder = resolve("tp_transformer_mathematics")
    assert not (folder / "evaluations.jsonl").exists()
    # The module is one of the easiest.
    assert float(re.search(r"([\d.]+)% of 60", result.stdout)[1]) > 90


@pytest.mark.parametrize(
    ("limit", "notes"),
    [
        (40, r"\(.*%, loss \d\.\d+, the model cannot read \d+\)"),
        (9, r"\(0.0% to 6.0%, the model cannot read 60\)"),
    ],
)
def test_problems_that_are_too_long(run, model_dir, limit, notes):
    model = load_model(model_dir)
    model.config = model.config.replace(max_question_length=limit)
    model.save(model_dir / "model.keras")
    result = run("evaluate", f"--model={model_dir}", "--splits=interpolate")
    assert re.search(f"% of 60 answers right {notes}$", result.stdout.strip())
    (row,) = evaluations_of(model_dir)
    assert (row["unread"] == 60) == (limit == 9)


def test_no_splits_are_refused(run, model_dir):
    result = run("evaluate", f"--model={model_dir}", "--splits=")
    assert_refused(result, "--splits")


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(run, model_dir):
    """The figures are there before they are written."""
    (model_dir / "evaluations.jsonl").symlink_to("/dev/full")
    result = run("evaluate", f"--model={model_dir}")
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [MODULE, "interpolate"],
        [MODULE, "extrapolate"],
    ]
    assert result.status == 2
    assert result.stderr.count("\n") == 1
    assert str(model_dir / "evaluations.jsonl") in result.stderr


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("evaluate", {MODULE: "12"}),
        ("report", {MODULE: "12"}),
        ("quiz", {MODULE: "12"}),
        ("quiz", {"other": "1234"}),
        ("quiz", {}),
    ],
)
def test_other_data_than_the_trainings_is_named(
    run, model_dir, tmp_path, name, data
):
    config = json.loads((model_dir / "config.json").read_text())
    config["data"] = data
    (model_dir / "config.json").write_text(json.dumps(config))
    page = f"--output={tmp_path / 'report.md'}"
    flags = {
        "evaluate": [f"--model={model_dir}", "--splits=interpolate"],
        "quiz": [f"--model={model_dir}", "--count=1"],
        "report": [f"--models={model_dir}", page, "--examples=1"],
    }
    result = run(name, *flags[name]).quiet()
    named = [
        line for line in result.stdout.splitlines() if str(model_dir) in line
    ]
    assert len(named) == bool(data)
    assert all(MODULE in line for line in named)

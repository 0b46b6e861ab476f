import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tests.training.trainings import write_config
from tpt_keras.data_generators import open_task
from tpt_keras.models import Transformer
from tpt_keras.training.questions import evaluate
from tpt_keras.training.state.model_folder import read_training
from tpt_keras.training.trainer import Trainer

SPLITS = ["train", "interpolate", "extrapolate"]
OF_NO_MODULES = ["--dataset=mathematics_dataset", "--data_dir=/nowhere"]


def save_model(folder):
    """Saves a model that reads short questions only."""
    Transformer.from_preset(
        "tp_transformer_tiny",
        **{"hidden_dim": 8, "num_heads": 1, "num_layers": 1},
        max_question_length=42,
    ).save(folder / "model.keras")


@pytest.mark.slow
def test_the_report_has_the_evaluations_accuracies(
    run, tmp_path, trained_model, trained_model_dir
):
    path = tmp_path / "written" / "report.md"
    data_dir = read_training(trained_model_dir)["data_dir"]
    (tmp_path / "other").mkdir()
    save_model(tmp_path / "other")
    result = run(
        "report",
        f"--models={trained_model_dir},{tmp_path / 'other'}",
        f"--modules={MODULE}",
        f"--data_dir={data_dir}",
        f"--output={path}",
        f"--splits={','.join(SPLITS)}",
    ).quiet()
    # A line for each of two models and three splits.
    assert result.stdout.count(MODULE) == 6
    assert result.stdout.endswith(f"{path}\n")
    content = json.loads(path.with_suffix(".json").read_text())
    first, other = content["models"]
    assert (first["step"], other["step"]) == (60, None)
    assert first["weights"] == trained_model.count_params()
    trainer = Trainer(trained_model)
    trainer.compile(jit_compile=False)
    problems = content["problems"]
    task = open_task(problems["dataset"], problems["data_dir"], [MODULE])
    for row in evaluate(trainer, task, SPLITS, max_examples=100):
        reported = first["splits"][row["split"]]["of_modules"][MODULE]
        assert reported["examples"] == row["examples"]
        assert reported["accuracy"] == pytest.approx(row["sequence_accuracy"])
    assert 0.0 < first["splits"]["train"]["accuracy"] < 1.0
    assert 0 < other["splits"]["interpolate"]["unread"] < 60
    assert "TP-Transformer" in path.read_text()
    # The curves are those of the one that was trained here.
    for name in (*SPLITS, "trainings"):
        picture = path.with_name(f"report_{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
    levels = [each["level"] for each in content["reached"]]
    assert levels == [0.4, 0.6, 0.76]
    assert {each["name"] for each in content["reached"]} == {first["name"]}


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--output=report.pdf"], ["--output", "report.pdf", ".md"]),
        ([], ["--dataset"]),
        (OF_NO_MODULES, ["--modules"]),
    ],
)
def test_refused(run, tmp_path, arguments, parts):
    (tmp_path / "model.keras").touch()
    result = run("report", f"--models={tmp_path}", *arguments)
    assert_refused(result, *parts)


def test_options_of_another_dataset_are_not_taken(run, tmp_path):
    save_model(tmp_path)
    write_config(
        tmp_path,
        modules=["one"],
        dataset="mathematics_stream",
        dataset_options=["validation_problems=9"],
    )
    pairs = [f"{n} + {n}\t{2 * n}\n" for n in range(60)]
    (tmp_path / "one.tsv").write_text("".join(["question\tanswer\n", *pairs]))
    run(
        "report",
        f"--models={tmp_path}",
        "--dataset=text_pairs",
        f"--data_dir={tmp_path / 'one.tsv'}",
        f"--output={tmp_path / 'report.md'}",
    ).succeeded()
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["problems"]["dataset_options"] == []


def test_trainings_of_different_modules_need_a_flag(run, tmp_path):
    for module in ("numbers__gcd", "numbers__lcm"):
        (tmp_path / module).mkdir()
        (tmp_path / module / "model.keras").touch()
        write_config(tmp_path / module, modules=[module])
    folders = f"{tmp_path}/numbers__gcd,{tmp_path}/numbers__lcm"
    result = run("report", f"--models={folders}")
    assert_refused(result, "--modules")


def test_a_missing_split_or_model_is_refused(run, tmp_path, place_value_data):
    arguments = (
        "report",
        "--dataset=mathematics_dataset",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        f"--output={tmp_path / 'written' / 'report.md'}",
        "--splits=train,tests",
        f"--models={tmp_path}",
    )
    # Before the data are read.
    assert_refused(run(*arguments), tmp_path, "model.keras")
    (tmp_path / "model.keras").touch()
    assert_refused(run(*arguments), "split", "'tests'", "interpolate")
    assert not (tmp_path / "written").exists()

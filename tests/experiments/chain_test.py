"""The commands one after another, as the demo calls them."""

import json

import pytest
import tensorflow as tf

from tests.conftest import MODULE
from tests.experiments.command import ROOT
from tests.experiments.command import run_alone
from tpt_keras.training.metrics_log import read_metrics

HPARAMS = "hidden_dim=16,intermediate_dim=32,num_layers=1,num_heads=2"


@pytest.mark.slow
def test_from_nothing_to_answers(run, tmp_path):
    data_dir = tmp_path / "data"
    model_dir = tmp_path / "model"
    export_dir = tmp_path / "saved_models" / "tiny"

    def succeed(name, *arguments):
        result = run(name, *arguments)
        assert result.status == 0
        return result.stdout

    check_data(succeed, data_dir)
    # To trace the graphs would take longer than what they are for. A training
    # with them, as a user calls it, is in the test of the plain output.
    tf.config.run_functions_eagerly(True)
    try:
        check_training(succeed, data_dir, model_dir)
        check_evaluation(succeed, model_dir)
    finally:
        tf.config.run_functions_eagerly(False)
    printed = succeed(
        "export", f"--model_dir={model_dir}", f"--export_dir={export_dir}"
    )
    assert printed.splitlines()[-1] == str(export_dir / "1")
    # As a user calls them: without the model's classes.
    check_solving(export_dir, model_dir)
    check_quiz(export_dir, data_dir)


def check_data(succeed, data_dir):
    prepare = [
        "prepare_data",
        f"--modules={MODULE}",
        f"--data_dir={data_dir}",
        "--train_examples=90",
        "--evaluation_examples=12",
        "--num_workers=1",
    ]
    assert str(data_dir) in succeed(*prepare)
    assert "there already" in succeed(*prepare)


def check_training(succeed, data_dir, model_dir):
    train = [
        "train",
        "--preset=tp_transformer_tiny",
        f"--hparams={HPARAMS}",
        f"--modules={MODULE}",
        f"--data_dir={data_dir}",
        f"--model_dir={model_dir}",
        "--train_steps=3",
        "--steps_per_checkpoint=1",
        "--steps_per_evaluation=2",
        "--validation_examples=10",
        "--batch_size=16",
        "--evaluation_examples=5",
        "--learning_rate=0.01",
    ]
    assert "nothing to do" not in succeed(*train)
    assert "nothing to do" in succeed(*train)
    config = json.loads((model_dir / "config.json").read_text())
    assert config["preset"] == "tp_transformer_tiny"
    assert config["model"]["hidden_dim"] == 16
    assert config["training"]["run"]["train_steps"] == 3
    assert (model_dir / "learning_curves.png").is_file()
    rows = read_metrics(model_dir)
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert [f"interpolate/{MODULE}" in row for row in rows] == [
        False,
        True,
        True,
    ]


def check_evaluation(succeed, model_dir):
    # Data and modules are those of the training.
    printed = succeed("evaluate", f"--model_dir={model_dir}", "--batch_size=5")
    results = json.loads((model_dir / "evaluation.json").read_text())
    assert [(r["module"], r["split"], r["examples"]) for r in results] == [
        (MODULE, "interpolate", 12),
        (MODULE, "extrapolate", 12),
    ]
    assert len(printed.splitlines()) == 2
    for line, result in zip(printed.splitlines(), results):
        assert line.startswith(MODULE)
        assert result["split"] in line
        assert f"{result['sequence_accuracy']:.2%} of 12" in line

    # The best is another file, which need not be another model.
    (model_dir / "model.keras").rename(model_dir / "hidden.keras")
    assert "interpolate" in succeed(
        "evaluate", f"--model_dir={model_dir}", "--best"
    )
    (model_dir / "hidden.keras").rename(model_dir / "model.keras")


def check_solving(export_dir, model_dir):
    questions = ["What is the tens digit of 31859?", "1 + 1"]
    solved = run_alone(
        "solve",
        f"--saved_model={export_dir}",
        *(f"--question={question}" for question in questions),
    )
    assert (solved.status, solved.stderr) == (0, "")
    from tpt_keras.models.load_model import load_model

    assert solved.stdout.splitlines() == load_model(model_dir).solve(questions)


def check_quiz(export_dir, data_dir):
    asked = run_alone(
        "quiz",
        f"--saved_model={export_dir}",
        "--modules=numbers__place_valu?",
        f"--data_dir={data_dir}",
        "--count=4",
    )
    assert (asked.status, asked.stderr) == (0, "")
    lines = asked.stdout.splitlines()
    *lines, count = lines
    assert len(lines) == 8
    num_right = sum(line.endswith("right") for line in lines)
    assert count == f"{num_right} of 4 answers right"
    for question, answer in zip(lines[::2], lines[1::2]):
        assert question.startswith(("What is", "In "))
        given, target = answer.split("answer:")[1].split("target:")
        target, mark = target.split()
        assert mark == ("right" if given.strip() == target else "WRONG")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted((ROOT / "experiments" / "configs").glob("*.cfg"))
        # Those of this command.
        if path.stem not in ("replicate", "tune")
    ],
    ids=lambda path: path.stem,
)
def test_every_flagfile_trains(
    run, without_graphs, place_value_data, tmp_path, path
):
    # What comes after a flagfile overrides it.
    result = run(
        "train",
        f"--flagfile={path}",
        f"--hparams={HPARAMS}",
        f"--modules={MODULE}",
        f"--data_dir={place_value_data}",
        f"--model_dir={tmp_path}",
        "--train_steps=1",
        "--warmup_steps=0",
        "--steps_per_evaluation=1",
        "--validation_examples=10",
        "--batch_size=8",
    )
    assert result.status == 0
    assert (tmp_path / "model.keras").is_file()
    # The flagfile is not without effect.
    config = json.loads((tmp_path / "config.json").read_text())
    [preset] = [
        line.partition("=")[2]
        for line in path.read_text().splitlines()
        if line.startswith("--preset=")
    ]
    assert config["preset"] == preset

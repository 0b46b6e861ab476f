"""The commands one after another, as the demo calls them."""

import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import ROOT
from tests.experiments.command import run_alone
from tpt_keras.models.load_model import load_model

HPARAMS = "hidden_dim=16,intermediate_dim=32,num_layers=1,num_heads=2"


def lines_of(result):
    """The lines of a command that succeeds, without control characters."""
    assert result.status == 0, result
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert all(line.isprintable() for line in lines), result.stdout
    return lines


@pytest.mark.slow
def test_from_nothing_to_answers(run, tmp_path):
    data_dir = tmp_path / "data"
    model_dir = tmp_path / "model"
    export_dir = tmp_path / "saved_models" / "tiny"
    prepare = [
        f"--modules={MODULE}",
        f"--data_dir={data_dir}",
        "--train_examples=90",
        "--evaluation_examples=12",
        "--num_workers=1",
    ]
    lines = lines_of(run("prepare_data", *prepare))
    assert any(str(data_dir) in line for line in lines)
    lines_of(run("prepare_data", *prepare))

    train = [
        "--preset=tp_transformer_tiny",
        f"--hparams={HPARAMS}",
        f"--modules={MODULE}",
        f"--data_dir={data_dir}",
        f"--model_dir={model_dir}",
        "--train_steps=2",
        "--steps_per_checkpoint=1",
        "--steps_per_evaluation=2",
        "--validation_examples=10",
        "--batch_size=16",
    ]
    # In a process of its own, as a user does.
    assert len(lines_of(run_alone("train", *train))) <= 8
    assert len(lines_of(run("train", *train))) == 1
    config = json.loads((model_dir / "config.json").read_text())
    assert config["preset"] == "tp_transformer_tiny"
    assert (model_dir / "model.keras").is_file()
    assert (model_dir / "learning_curves.png").is_file()

    lines = lines_of(run("evaluate", f"--model_dir={model_dir}"))
    results = json.loads((model_dir / "evaluation.json").read_text())
    assert [(r["module"], r["split"], r["examples"]) for r in results] == [
        (MODULE, "interpolate", 12),
        (MODULE, "extrapolate", 12),
    ]
    assert len(lines) == 2
    lines_of(run("evaluate", f"--model_dir={model_dir}", "--best"))

    lines = lines_of(
        run("export", f"--model_dir={model_dir}", f"--export_dir={export_dir}")
    )
    assert lines[-1] == str(export_dir / "1")
    check_answers(run, export_dir, model_dir, data_dir)


def check_answers(run, export_dir, model_dir, data_dir):
    questions = ["What is the tens digit of 31859?", "1 + 1"]
    # In a process of its own, which does not import the model's classes.
    lines = lines_of(
        run_alone(
            "solve",
            f"--saved_model={export_dir}",
            *(f"--question={question}" for question in questions),
        )
    )
    assert lines == load_model(model_dir).solve(questions)
    *lines, count = lines_of(
        run(
            "quiz",
            f"--saved_model={export_dir}",
            "--modules=numbers__place_valu?",
            f"--data_dir={data_dir}",
            "--count=4",
        )
    )
    assert len(lines) == 8
    num_right = 0
    for line in lines[1::2]:
        given, target = line.split("answer:")[1].split("target:")
        target, mark = target.split()
        assert mark == ("right" if given.strip() == target else "WRONG")
        num_right += mark == "right"
    assert count.startswith(f"{num_right} of 4 ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted((ROOT / "experiments" / "configs").glob("*.cfg"))
        # The others are for other commands.
        if path.stem not in ("replicate", "tune")
    ],
    ids=lambda path: path.stem,
)
def test_every_flagfile_trains(
    run, without_graphs, place_value_data, tmp_path, path
):
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
    config = json.loads((tmp_path / "config.json").read_text())
    assert f"--preset={config['preset']}" in path.read_text()

"""The command, and the winner's flagfile in the hands of the training."""

import functools
import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_error
from tests.experiments.command import assert_refused
from tpt_keras.training.state.model_folder import read_config


@pytest.fixture
def tune(run_tiny, tmp_path):
    return functools.partial(
        run_tiny,
        "tune",
        "--variants=transformer,tp_transformer",
        "--min_weights=3000",
        "--max_weights=4000",
        "--max_trials=1",
        "--executions_per_trial=1",
        f"--tuning_dir={tmp_path / 'search'}",
    )


@pytest.mark.slow
def test_text_pairs_have_models_of_the_size(tune, tmp_path):
    symbols = [chr(0x4E00 + number) for number in range(120)]
    long = "?" * 160
    rows = [f"{a}{b}{long}\t{a}\n" for a in symbols for b in symbols[:5]]
    (tmp_path / "pairs.tsv").write_text("".join(["question\tanswer\n", *rows]))
    result = tune(
        "--dataset=text_pairs",
        f"--data_dir={tmp_path / 'pairs.tsv'}",
        "--modules=",
        "--variants=transformer",
        "--min_weights=5900",
        "--max_weights=6000",
        "--hparams=max_question_length=162",
    )
    assert result.status == 0, result.stderr
    [trial] = json.loads((tmp_path / "search/report.json").read_text())
    assert 5900 <= trial["weights"] <= 6000
    best = (tmp_path / "search/best.cfg").read_text()
    assert "max_question_length=162" in best


@pytest.mark.slow
def test_flags_of_another_optimizer(tune, tmp_path):
    result = tune(
        "--variants=transformer",
        "--optimizers=muon",
        "--weight_decay=0",
        "--momentum_warmup_steps=1",
    )
    assert result.status == 0, result.stderr
    [path] = (tmp_path / "search").glob("trials/*/config.json")
    optimizer = read_config(path.parent)["training"]["optimizer"]
    assert optimizer["optimizer"] == "muon"
    assert optimizer["weight_decay"] == 0.0
    assert optimizer["momentum_warmup_steps"] == 1


@pytest.mark.slow
def test_a_search_and_its_winner_trained_again(run, tune, tmp_path):
    folder = tmp_path / "search"
    result = tune("--module_weights=numbers__place_value=2")
    assert result.status == 0, result.stderr
    assert result.stdout.endswith(f"{folder}/report.md\n")
    [trial] = json.loads((folder / "report.json").read_text())
    assert trial["status"] == "completed"

    model_dir = tmp_path / "model"
    result = run(
        "train",
        f"--flagfile={folder}/best.cfg",
        "--evaluation_examples=0",
        f"--model_dir={model_dir}",
    )
    assert result.status == 0, result.stderr
    assert read_config(model_dir) == read_config(folder / trial["folder"])

    # Finished: the same again does nothing, and another one is refused.
    report = (folder / "report.md").read_bytes()
    result = tune("--module_weights=numbers__place_value=2")
    assert result.status == 0, result.stderr
    assert "Training from" not in result.stdout
    assert (folder / "report.md").read_bytes() == report
    assert_refused(
        tune("--seed=1", "--num_heads=1"),
        "seed: 0 there, 1 here",
        "space.num_heads",
    )


@pytest.mark.slow
def test_a_search_without_a_completed_trial_is_an_error(tune, tmp_path):
    result = tune("--variants=transformer", "--learning_rates=1e38,2e38")
    assert (result.status, "Trial 0 failed: " in result.stdout) == (2, True)
    assert_error(result, tmp_path / "search" / "report.md", "--tuning_dir")


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--tuner=simplex"], ["--tuner=simplex", "grid"]),
        (["--objective=loss"], ["--objective=loss", "val_loss"]),
        (["--modules="], ["--modules"]),
        (["--max_trials=0"], ["max_trials", "0"]),
        (["--max_weights=3100", "--min_weights=3090"], ["--max_weights"]),
        (["--distribution=multi_worker_mirrored"], ["none"]),
        (["--dropouts=two"], ["dropouts", "two"]),
        (["--validation_examples=600"], ["600", MODULE]),
    ],
)
def test_what_makes_no_sense(tune, tmp_path, flags, parts):
    assert_refused(tune(*flags), *parts)
    assert not list(tmp_path.iterdir())


def test_of_other_workers(tune, monkeypatch):
    """A search ignores TF_CONFIG."""
    monkeypatch.setenv("TF_CONFIG", "nothing that anybody could read")
    assert_refused(tune("--data_dir=nothing"), "nothing", "prepare_data")

"""The command, and the winner's flagfile in the hands of the training."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import MODULE
from tests.experiments.command import ROOT
from tests.experiments.command import assert_error
from tests.experiments.command import assert_refused
from tests.experiments.conftest import TINY
from tests.experiments.interruption_test import wait_until
from tests.serving.tf_serving import free_port
from tpt_keras.training.state.model_folder import read_config
from tpt_keras.tuning.oracles import ORACLE_IP
from tpt_keras.tuning.oracles import VARIABLES

FLAGS = (
    "--variants=transformer,tp_transformer",
    "--min_weights=3000",
    "--max_weights=4000",
    "--max_trials=1",
    "--executions_per_trial=1",
)


@pytest.fixture
def tune(run_tiny, tmp_path):
    return functools.partial(
        run_tiny, "tune", *FLAGS, f"--tuning_dir={tmp_path / 'search'}"
    )


@pytest.mark.slow
def test_text_pairs_have_models_of_the_size(tune, tmp_path):
    symbols = [chr(0x4E00 + number) for number in range(120)]
    long = "?" * 160
    rows = [f"{a}{b}{long}\t{a}\n" for a in symbols for b in symbols[:5]]
    (tmp_path / "pairs.tsv").write_text("".join(["question\tanswer\n", *rows]))
    tune(
        "--dataset=text_pairs",
        f"--data_dir={tmp_path / 'pairs.tsv'}",
        "--modules=",
        "--variants=transformer",
        "--min_weights=5900",
        "--max_weights=6000",
        "--hparams=max_question_length=162",
    ).succeeded()
    [trial] = json.loads((tmp_path / "search/report.json").read_text())
    assert 5900 <= trial["weights"] <= 6000
    best = (tmp_path / "search/best.cfg").read_text()
    assert "max_question_length=162" in best


@pytest.mark.slow
def test_flags_of_another_optimizer(tune, tmp_path):
    tune(
        "--variants=transformer",
        "--optimizers=muon",
        "--weight_decay=0",
        "--momentum_warmup_steps=1",
    ).succeeded()
    [path] = (tmp_path / "search").glob("trials/*/config.json")
    optimizer = read_config(path.parent)["training"]["optimizer"]
    assert optimizer["optimizer"] == "muon"
    assert optimizer["weight_decay"] == 0.0
    assert optimizer["momentum_warmup_steps"] == 1


@pytest.mark.slow
def test_a_search_and_its_winner_trained_again(run, tune, tmp_path):
    folder = tmp_path / "search"
    result = tune("--module_weights=numbers__place_value=2").succeeded()
    assert result.stdout.endswith(f"{folder}/report.md\n")
    [trial] = json.loads((folder / "report.json").read_text())
    assert trial["status"] == "completed"

    model_dir = tmp_path / "model"
    run(
        "train",
        f"--flagfile={folder}/best.cfg",
        "--evaluation_examples=0",
        f"--model_dir={model_dir}",
    ).succeeded()
    assert read_config(model_dir) == read_config(folder / trial["folder"])

    # Finished: the same again does nothing, and another one is refused.
    report = (folder / "report.md").read_bytes()
    result = tune("--module_weights=numbers__place_value=2").succeeded()
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


@pytest.fixture
def start(tmp_path, place_value_data):
    """Starts a chief or a worker, whose output goes into a file."""
    port = str(free_port())
    with contextlib.ExitStack() as stack:

        def start(tuner_id, *flags):
            if tuner_id != "chief":
                # It starts slower than a worker waits where many tests run.
                wait_until((tmp_path / "search/config.json").exists, 600)
            given = zip(VARIABLES, (tuner_id, "127.0.0.1", port))
            output = stack.enter_context((tmp_path / tuner_id).open("w"))
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "experiments", "tune"),
                    *("--flagfile=tune.cfg", *TINY, f"--modules={MODULE}"),
                    f"--data_dir={place_value_data}",
                    f"--tuning_dir={tmp_path / 'search'}",
                    *(*FLAGS, *flags),
                ],
                cwd=ROOT,
                env={**os.environ, **dict(given)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


def assert_same_alone(tune, tmp_path, *flags):
    """A search in one process has the same report."""
    assert tune(*flags, f"--tuning_dir={tmp_path / 'alone'}").status == 0
    for name in ("report.json", "report.md", "best.cfg"):
        alone = (tmp_path / "alone" / name).read_text()
        assert (tmp_path / "search" / name).read_text() == alone


@pytest.mark.slow
def test_a_chief_and_two_workers(start, tune, tmp_path):
    flags = "--tuner=grid", "--max_trials=3"
    names = "chief", "tuner0", "tuner1"
    processes = [start(name, *flags) for name in names]
    assert [process.wait(600) for process in processes] == [0, 0, 0]
    for name in names:
        *lines, last = (tmp_path / name).read_text().splitlines()
        assert ("report.md" if name == "chief" else "The chief") in last
        # Keras-tuner's messages are single words.
        assert all(" " in line for line in lines)
    assert_same_alone(tune, tmp_path, *flags)


@pytest.mark.slow
def test_killed_worker_and_killed_chief(start, tune, tmp_path):
    intervals = "--steps_per_checkpoint=10", "--steps_per_evaluation=10"
    flags = "--tuner=random", "--train_steps=300", *intervals
    chief, killed = start("chief", *flags), start("tuner0", *flags)
    checkpoints = "search/trials/*/checkpoints/ckpt-*.npz"
    wait_until(
        lambda: killed.poll() is not None or list(tmp_path.glob(checkpoints)),
        600,
    )
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert start("tuner1", *flags).wait(600) == 0
    assert "Resuming from" in (tmp_path / "tuner1").read_text()
    chief.kill()
    chief.wait()
    assert start("chief", *flags).wait(600) == 0
    assert_same_alone(tune, tmp_path, *flags)


@pytest.mark.parametrize(
    ("tuner_id", "address"), [("tuner0", "127.0.0.1"), ("chief", "192.0.2.1")]
)
def test_no_chief_at_the_address(tune, monkeypatch, tuner_id, address):
    for name, text in zip(VARIABLES, (tuner_id, address, str(free_port()))):
        monkeypatch.setenv(name, text)
    monkeypatch.setattr("tpt_keras.tuning.oracles.PATIENCE", 1)
    result = tune()
    # gRPC's server writes a line of its own.
    [*_, line] = result.stderr.splitlines()
    assert (result.status, ORACLE_IP in line) == (2, True)


def test_slurm_script():
    """Bash parses it."""
    script = ROOT / "experiments" / "configs" / "tune.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    assert "#SBATCH --ntasks=" in script.read_text()

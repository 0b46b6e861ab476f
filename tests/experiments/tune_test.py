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


def variables(tuner_id, port):
    return {
        "KERASTUNER_TUNER_ID": tuner_id,
        "KERASTUNER_ORACLE_IP": "127.0.0.1",
        "KERASTUNER_ORACLE_PORT": str(port),
    }


@pytest.fixture
def start(tmp_path, place_value_data):
    """Starts a chief or a worker, whose output goes into a file."""
    port = free_port()
    with contextlib.ExitStack() as stack:

        def start(tuner_id, *flags):
            if tuner_id != "chief":
                # It starts slower than a worker waits where many tests run.
                wait_until((tmp_path / "search/config.json").exists, 300)
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
                env={**os.environ, **variables(tuner_id, port)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield start


@pytest.fixture
def same_alone(tune, tmp_path):
    """Asserts that a search in one process has the same report."""

    def same_alone(*flags):
        assert tune(*flags, f"--tuning_dir={tmp_path / 'alone'}").status == 0
        for name in ("report.json", "report.md", "best.cfg"):
            there, here = (
                tmp_path / each / name for each in ("search", "alone")
            )
            assert there.read_text() == here.read_text()

    return same_alone


@pytest.mark.slow
def test_a_chief_and_two_workers(start, same_alone, tmp_path):
    flags = "--tuner=grid", "--max_trials=4"
    names = "chief", "tuner0", "tuner1"
    processes = [start(name, *flags) for name in names]
    assert [process.wait(300) for process in processes] == [0, 0, 0]
    for name in names:
        *lines, last = (tmp_path / name).read_text().splitlines()
        assert ("report.md" if name == "chief" else "The chief") in last
        # Keras-tuner's messages are single words.
        assert all(" " in line for line in lines)
    same_alone(*flags)


@pytest.mark.slow
def test_killed_worker_and_killed_chief(start, same_alone, tmp_path):
    flags = "--train_steps=100", "--tuner=random"
    chief, killed = start("chief", *flags), start("tuner0", *flags)
    checkpoints = "search/trials/*/checkpoints/ckpt-2.npz"
    wait_until(
        lambda: killed.poll() is not None or list(tmp_path.glob(checkpoints)),
        300,
    )
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert start("tuner1", *flags).wait(300) == 0
    assert "Resuming from" in (tmp_path / "tuner1").read_text()
    chief.kill()
    chief.wait()
    assert start("chief", *flags).wait(300) == 0
    same_alone(*flags)


@pytest.mark.parametrize("name", variables("tuner0", 1))
@pytest.mark.parametrize("value", [None, ""])
def test_half_set_variables(tune, monkeypatch, tmp_path, name, value):
    for each, text in {**variables("tuner0", 1), name: value}.items():
        if text is not None:
            monkeypatch.setenv(each, text)
    assert_refused(tune(), name)
    assert not (tmp_path / "search").exists()


@pytest.mark.parametrize(
    ("tuner_id", "address"), [("chief", "192.0.2.1"), ("tuner0", "127.0.0.1")]
)
def test_no_chief_at_the_address(tune, monkeypatch, tuner_id, address):
    given = variables(tuner_id, free_port())
    for name, text in {**given, "KERASTUNER_ORACLE_IP": address}.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr("tpt_keras.tuning.oracles.PATIENCE", 1)
    result = tune()
    # gRPC's server writes a line of its own.
    [*_, line] = result.stderr.splitlines()
    assert (result.status, "KERASTUNER_ORACLE_IP" in line) == (2, True)


def test_slurm_script():
    """Bash parses it."""
    script = ROOT / "experiments" / "configs" / "tune.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    assert "#SBATCH --ntasks=" in script.read_text()

"""Commands that are killed by SIGKILL and started again.

Their trainings are tiny and trace nothing: any would do.
"""

import json

import pytest

from tests.conftest import MODULE
from tests.training import processes
from tests.training.processes import ForkedProcess
from tpt_keras.models.load_model import MODEL_FILE

pytestmark = pytest.mark.slow

TINY = (
    f"--modules={MODULE}",
    "--num_layers=1",
    "--num_heads=2",
    "--train_steps=8",
    "--steps_per_checkpoint=2",
    "--steps_per_evaluation=8",
    "--evaluation_examples=0",
    "--validation_examples=20",
    "--batch_size=16",
)
TUNE = (
    "tune",
    *TINY,
    "--max_trials=3",
    "--variants=transformer,tp_transformer",
    "--min_weights=3000",
    "--max_weights=4000",
)
REPLICATE = (
    "replicate",
    *TINY,
    "--variants=transformer,tp_transformer",
    "--scale=0.015625",
    "--seeds=1",
    "--examples=4",
)


def has_begun(folder, number):
    """Returns `True` once this training, counted from 1, has a checkpoint."""
    rows = sum(
        path.read_text().count("\n") for path in folder.rglob("metrics.jsonl")
    )
    return rows >= 4 * (number - 1) + 2


@pytest.fixture
def start(place_value_data, tmp_path):
    started = []

    def start(command, *flags, **environment):
        started.append(command)
        return ForkedProcess(
            "tests.tuning.eager_command",
            command,
            *flags,
            f"--data_dir={place_value_data}",
            output=tmp_path / f"{len(started)}.txt",
            environment=environment,
        )

    return start


def finish(process):
    """Waits for a process that ends by itself."""
    with processes.killed_at_the_end([process]):
        assert process.wait() == 0, process.output


def finished_models(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob(MODEL_FILE)}


@pytest.mark.parametrize(
    ("flags", "report"),
    [
        ((*TUNE, "--tuning_dir="), "report.json"),
        ((*REPLICATE, "--replication_dir="), "replication.json"),
    ],
)
def test_killed_command_resumes_to_the_same_result(
    start, tmp_path, flags, report
):
    def run(folder):
        return start(*flags[:-1], f"{flags[-1]}{folder}")

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(run(whole))
    with processes.killed_at_the_end([run(killed)]) as [process]:
        process.wait_until(lambda: has_begun(killed, 2))
    before = finished_models(killed)
    finish(run(killed))
    assert before
    assert before.items() <= finished_models(killed).items()
    assert (killed / report).read_text() == (whole / report).read_text()


def test_worker_started_again_resumes_its_trial(start, tmp_path):
    [port] = processes.free_ports(1)
    folder = tmp_path / "search"

    def run(name):
        return start(
            *TUNE,
            f"--tuning_dir={folder}",
            KERASTUNER_TUNER_ID=name,
            KERASTUNER_ORACLE_IP="localhost",
            KERASTUNER_ORACLE_PORT=str(port),
        )

    with processes.killed_at_the_end([run("chief"), run("one")]) as [
        chief,
        one,
    ]:
        one.wait_until(lambda: has_begun(folder, 1))
        one.kill()
        finish(run("one"))
        assert chief.wait() == 0, chief.output
    trials = json.loads((folder / "report.json").read_text())
    assert [trial["status"] for trial in trials] == ["completed"] * 3

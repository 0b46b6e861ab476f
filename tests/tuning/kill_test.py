"""A search that is killed by SIGKILL and started again.

Its trainings are tiny and trace nothing: any would do.
"""

import pytest

from tests.conftest import MODULE
from tests.training import processes
from tests.training.processes import ForkedProcess
from tpt_keras.models.stored import MODEL_FILE

pytestmark = [pytest.mark.slow, pytest.mark.jax]


@pytest.fixture
def start(place_value_data, tmp_path):
    def start(folder):
        return ForkedProcess(
            "tests.tuning.eager_command",
            "tune",
            f"--tuning_dir={folder}",
            f"--data_dir={place_value_data}",
            f"--modules={MODULE}",
            "--variants=transformer,tp_transformer",
            "--num_layers=1",
            "--num_heads=2",
            "--min_weights=3000",
            "--max_weights=4000",
            "--max_trials=2",
            "--train_steps=8",
            "--steps_per_checkpoint=2",
            "--steps_per_evaluation=8",
            "--evaluation_examples=0",
            "--validation_examples=20",
            "--batch_size=16",
            output=tmp_path / "output.txt",
        )

    return start


def finish(process):
    """Waits for a process that ends by itself."""
    with processes.killed_at_the_end([process]):
        assert process.wait() == 0, process.output


def rows(folder):
    """The number of rows of metrics, one of each checkpoint."""
    return sum(
        path.read_text().count("\n") for path in folder.rglob("metrics.jsonl")
    )


def finished_models(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob(MODEL_FILE)}


def test_killed_search_resumes_to_the_same_result(start, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(whole))
    with processes.killed_at_the_end([start(killed)]) as [process]:
        # The second of two trainings of four checkpoints has two.
        process.wait_until(lambda: rows(killed) >= 6)
    before = finished_models(killed)
    finish(start(killed))
    assert len(before) == 1
    assert before.items() <= finished_models(killed).items()
    name = "report.json"
    assert (killed / name).read_text() == (whole / name).read_text()

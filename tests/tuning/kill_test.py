"""Searches that are killed, alone and with several workers.

Processes of the command itself, killed by SIGKILL: nothing in them gets to
clean up. What they train could be anything, so that they trace nothing.
"""

import json

import pytest

from tests.conftest import MODULE
from tests.training import processes
from tests.training.processes import ForkedProcess

pytestmark = pytest.mark.slow

TRIALS = 3


class Search:
    """The command for one folder, as often as it is started."""

    def __init__(self, data_dir, folder):
        self.folder = folder / "search"
        self._outputs = folder
        self._started = 0
        self._flags = [
            f"--data_dir={data_dir}",
            f"--modules={MODULE}",
            f"--tuning_dir={self.folder}",
            f"--max_trials={TRIALS}",
            "--variants=transformer,tp_transformer",
            "--num_layers=1",
            "--num_heads=2",
            "--min_weights=3000",
            "--max_weights=4000",
            "--train_steps=8",
            "--steps_per_checkpoint=2",
            "--steps_per_evaluation=8",
            "--evaluation_examples=0",
            "--validation_examples=20",
            "--batch_size=16",
        ]

    def start(self, environment=None):
        self._started += 1
        return ForkedProcess(
            "tests.tuning.impatient_tune",
            *self._flags,
            output=self._outputs / f"{self._started}.txt",
            environment=environment,
        )

    @property
    def results(self):
        """The report's trials."""
        return json.loads((self.folder / "report.json").read_text())

    def has_begun(self, trial):
        """Whether a trial is in the middle of its training."""
        log = self.folder / f"trial_{trial}/execution0/metrics.jsonl"
        return log.exists() and log.read_text().count("\n") > 2


@pytest.fixture(scope="module")
def expected(place_value_data, tmp_path_factory):
    """The trials of a search that is not killed."""
    search = Search(place_value_data, tmp_path_factory.mktemp("whole"))
    with processes.killed_at_the_end([search.start()]) as [process]:
        assert process.wait() == 0, process.output
    return search.results


def test_a_killed_search_finishes_with_the_same_trials(
    place_value_data, tmp_path, expected
):
    search = Search(place_value_data, tmp_path)
    with processes.killed_at_the_end([search.start()]) as [process]:
        process.wait_until(lambda: search.has_begun(1))
    with processes.killed_at_the_end([search.start()]) as [process]:
        assert process.wait() == 0, process.output
        assert "trial_1/execution0/checkpoints/ckpt-" in process.output
        assert "(step 0)" not in process.output
    assert search.results == expected


def test_workers_share_a_search_and_one_is_lost(
    place_value_data, tmp_path, expected
):
    [port] = processes.free_ports(1)
    search = Search(place_value_data, tmp_path)

    def start(name):
        variables = {
            "KERASTUNER_TUNER_ID": name,
            "KERASTUNER_ORACLE_IP": "localhost",
            "KERASTUNER_ORACLE_PORT": str(port),
        }
        return search.start(variables)

    with processes.killed_at_the_end(
        [start("chief"), start("one"), start("two")]
    ) as [chief, one, two]:
        two.wait_until(lambda: search.has_begun(0) and search.has_begun(1))
        one.kill()
        assert two.wait() == 0, two.output
        assert chief.wait() == 0, chief.output
        assert "The worker one is lost" in chief.output
    assert search.results == expected

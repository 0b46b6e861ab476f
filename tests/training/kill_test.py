"""A training that is killed again and again ends as if it never was.

Processes of the command itself, killed by SIGKILL: nothing in them gets to
clean up.
"""

import json
import random
import signal
import time
import zipfile

import keras
import numpy as np
import pytest

from tests.conftest import MODULE
from tests.training import processes
from tests.training.checkpoints import checkpoints_of
from tests.training.processes import ForkedProcess
from tests.training.processes import Process
from tpt_keras.models.load_model import load_model
from tpt_keras.training.state.logs import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.jax]

TRAIN_STEPS = 40
STEPS_PER_CHECKPOINT = 2
# The same files and the same loop on JAX, whose processes all compile.
RANDOM_KILLS = 2 if keras.backend.backend() == "tensorflow" else 1
# One whose best model is not the first that was evaluated.
SEED = 0 if keras.backend.backend() == "tensorflow" else 3


class Training:
    """The command for one folder, as often as it is started.

    Args:
        data_dir: Folder of the data.
        folder: Folder for the model's folder and for what is printed.
    """

    def __init__(self, data_dir, folder):
        self.model_dir = folder / "model"
        self.outputs = []
        self._folder = folder
        self._flags = [
            "--preset=tp_transformer",
            # Dropout, for the state of its seeds to be needed.
            "--hparams=hidden_dim=16,intermediate_dim=32,num_heads=2,"
            "num_layers=1,dropout=0.1",
            f"--modules={MODULE}",
            f"--data_dir={data_dir}",
            f"--model_dir={self.model_dir}",
            f"--train_steps={TRAIN_STEPS}",
            "--batch_size=16",
            "--learning_rate=0.01",
            "--validation_examples=20",
            f"--seed={SEED}",
            f"--steps_per_checkpoint={STEPS_PER_CHECKPOINT}",
            "--steps_per_evaluation=4",
            "--evaluation_examples=16",
        ]

    def start(self, process_class, module="experiments.train", *arguments):
        """A new process of the command, or of what wraps it."""
        number = len(self.outputs)
        self.outputs.append(self._folder / f"output_{number}")
        return process_class(
            module, *arguments, *self._flags, output=self.outputs[-1]
        )

    def finish(self, process_class):
        """Runs the command to its end; returns what it printed."""
        process = self.start(process_class)
        with processes.killed_at_the_end([process]):
            assert process.wait() == 0, process.output
        return process.output

    @property
    def rows(self):
        return read_metrics(self.model_dir)

    def kill_when(self, num_rows, seconds):
        """Starts it, and kills it so long after a row was written."""
        process = self.start(ForkedProcess)
        with processes.killed_at_the_end([process]):
            process.wait_until(
                lambda: (
                    self._has_started_to_fit(process)
                    and len(self.rows) >= num_rows
                )
            )
            time.sleep(seconds)
        assert process.wait() == -signal.SIGKILL
        self.assert_whole()

    def kill_in_checkpoint(self, where, checkpoint):
        """Starts it, to be killed in the middle of a checkpoint."""
        process = self.start(
            ForkedProcess, "tests.training.killed_train", where, checkpoint
        )
        with processes.killed_at_the_end([process]):
            assert process.wait() == -signal.SIGKILL, process.output
        self.assert_whole()

    def assert_whole(self):
        """Under its final name a file is whole, whenever the end came."""
        json.loads((self.model_dir / "config.json").read_text())
        for model in self.model_dir.glob("*.keras"):
            if not model.name.startswith("partial-"):
                with zipfile.ZipFile(model) as file:
                    assert file.testzip() is None
        for path in checkpoints_of(self.model_dir):
            with path.open("rb") as file:
                assert dict(np.load(file))

    def _has_started_to_fit(self, process):
        # The rows before are those of the process before.
        return "Training from step" in process.output


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, place_value_data):
    training = Training(place_value_data, tmp_path_factory.mktemp("whole"))
    training.finish(ForkedProcess)
    return training


@pytest.fixture(scope="module")
def killed(tmp_path_factory, place_value_data):
    """A training with everything in its way."""
    training = Training(place_value_data, tmp_path_factory.mktemp("killed"))
    folder = training.model_dir / "checkpoints"

    # The second checkpoint is the first behind a step.
    training.kill_in_checkpoint("data", 2)
    assert list(folder.glob("partial-*"))
    assert checkpoints_of(training.model_dir) == [
        training.model_dir / "checkpoints" / "ckpt-1.npz"
    ]
    assert [row["step"] for row in training.rows] == [STEPS_PER_CHECKPOINT]

    training.kill_in_checkpoint("oldest", 3)
    assert not list(folder.glob("partial-*"))
    assert len(checkpoints_of(training.model_dir)) == 4

    rng = random.Random(0)
    num_rows = TRAIN_STEPS // STEPS_PER_CHECKPOINT
    # Every kill later than the one before, and the last so early that the
    # training is not over in the meantime.
    moments = sorted(rng.sample(range(3, num_rows - 3), RANDOM_KILLS))
    for moment in moments:
        training.kill_when(moment, rng.uniform(0.0, 0.1))

    newest = checkpoints_of(training.model_dir)[-1]
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    training.damaged = str(newest)
    # As a user starts it.
    training.finish(Process)
    return training


def test_a_damaged_checkpoint_is_passed_over(killed):
    output = killed.outputs[-1].read_text()
    folder, number = killed.damaged.removesuffix(".npz").rsplit("-", 1)
    assert killed.damaged in output
    assert f"Resuming from {folder}-{int(number) - 1}.npz (step " in output


def test_every_kill_was_one_in_the_middle(killed):
    """Or there would be less to be seen in the other tests."""
    assert len(killed.outputs) == 2 + RANDOM_KILLS + 1
    for output in killed.outputs[1:]:
        assert "Resuming from" in output.read_text()


def test_the_same_metrics_to_the_bit(undisturbed, killed):
    rows, expected = [
        [
            {k: v for k, v in row.items() if not k.endswith("_per_second")}
            for row in training.rows
        ]
        for training in (killed, undisturbed)
    ]
    assert [row["step"] for row in expected] == list(
        range(STEPS_PER_CHECKPOINT, TRAIN_STEPS + 1, STEPS_PER_CHECKPOINT)
    )
    assert rows == expected
    assert list(rows[-1]) == list(expected[-1])


@pytest.mark.parametrize("best", [False, True])
def test_the_same_models_to_the_bit(undisturbed, killed, best):
    model, expected = (
        load_model(training.model_dir, best=best)
        for training in (killed, undisturbed)
    )
    assert model.config == expected.config
    for ours, theirs in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(
            ours.numpy(), theirs.numpy(), err_msg=ours.path
        )


def test_the_best_model_is_not_the_first_that_was_evaluated(undisturbed):
    """Or the best model above would be no test of the best score."""
    scores = [
        row["val_sequence_accuracy"]
        for row in undisturbed.rows
        if "val_sequence_accuracy" in row
    ]
    assert np.argmax(scores) > 0


def test_nothing_half_written_has_a_final_name(undisturbed, killed):
    killed.assert_whole()
    assert len(
        (killed.model_dir / "metrics.jsonl").read_text().splitlines()
    ) == len(killed.rows)
    names, expected = (
        {
            path.name
            for path in training.model_dir.iterdir()
            if not path.name.startswith("partial-")
        }
        for training in (killed, undisturbed)
    )
    assert names == expected

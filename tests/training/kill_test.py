"""A training that is killed again and again ends as if it never was.

Processes of the command itself, killed by SIGKILL: nothing in them gets to
clean up.
"""

import os
import random
import signal
import time
import zipfile

import numpy as np
import pytest

from tests.training import processes
from tests.training.processes import ForkedProcess
from tests.training.trainings import SIMPLE_MODEL
from tests.training.trainings import assert_same_weights
from tests.training.trainings import checkpoints_of
from tests.training.trainings import flags_of
from tests.training.trainings import timeless_metrics
from tpt_keras.data_generators import batches
from tpt_keras.models.stored import load_model
from tpt_keras.training.state.logs import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.jax, pytest.mark.torch]

FIELDS = {
    "train_steps": 16,
    "steps_per_checkpoint": 2,
    "steps_per_evaluation": 4,
    "batch_size": 16,
    "learning_rate": 0.01,
    "validation_examples": 20,
    "evaluation_examples": 16,
}
# Problems that are generated beside the training.
STREAM = {
    "dataset": "mathematics_stream",
    "dataset_options": "evaluation_problems=16,validation_problems=60",
}


def read_small_windows():
    """Several windows of batches in this process's training."""
    batches.WINDOW_BATCHES = 3


def die_in_the_second_checkpoint():
    """Kills this process when half of its second checkpoint is written."""
    read_small_windows()
    save, written = np.savez, []

    def save_or_die(path, **arrays):
        save(path, **arrays)
        written.append(path)
        if len(written) == 2:
            os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    np.savez = save_or_die


def assert_whole(model_dir):
    """Under its final name a file is whole, whenever the end came."""
    for model in model_dir.glob("[!p]*.keras"):
        with zipfile.ZipFile(model) as file:
            assert file.testzip() is None
    for path in checkpoints_of(model_dir):
        with path.open("rb") as file:
            assert dict(np.load(file))


@pytest.mark.parametrize("stream", [False, True], ids=["prepared", "stream"])
def test_killed_training_ends_as_if_it_never_was(
    tmp_path, place_value_data, stream
):
    data_dir = tmp_path / "data" if stream else place_value_data
    fields = FIELDS | (STREAM if stream else {})
    started = []
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def start(model_dir, generator_processes, prepare=read_small_windows):
        process = ForkedProcess(
            "experiments",
            "train",
            *SIMPLE_MODEL,
            *flags_of(
                data_dir,
                model_dir,
                generator_processes=generator_processes,
                **fields,
            ),
            output=tmp_path / f"output_{len(started)}",
            prepare=prepare,
        )
        started.append(process)
        return process

    with processes.killed_at_the_end(started):
        undisturbed = start(whole, 1)

        process = start(killed, 3, prepare=die_in_the_second_checkpoint)
        assert process.wait() == -signal.SIGKILL, process.output
        assert list((killed / "checkpoints").glob("partial-*"))
        assert [path.name for path in checkpoints_of(killed)] == ["ckpt-1.npz"]

        process = start(killed, 1)
        process.wait_until(
            lambda: (
                "Training from step" in process.output
                and len(read_metrics(killed)) >= 4
            )
        )
        time.sleep(random.uniform(0.0, 0.1))
        process.kill()
        assert "Resuming from" in process.output
        assert_whole(killed)
        assert not (killed / "model.keras").exists()

        process = start(killed, 3)
        assert process.wait() == 0, process.output
        assert "Resuming from" in process.output
        assert undisturbed.wait() == 0, undisturbed.output
    rows = timeless_metrics(killed)
    assert [row["step"] for row in rows] == list(range(2, 17, 2))
    assert rows == timeless_metrics(whole)
    for best in (False, True):
        model, expected = (
            load_model(model_dir, best) for model_dir in (killed, whole)
        )
        assert_same_weights(model, expected)
    assert_whole(killed)
    names, expected = (
        {path.name for path in model_dir.iterdir()}
        for model_dir in (killed, whole)
    )
    assert names == expected

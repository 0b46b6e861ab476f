"""Workers, every one a process, on every backend.

Everything here has a time limit: a worker whose partner is gone waits.
"""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

from tests.conftest import MODULE
from tests.training import processes
from tests.training.distributed_driver import train_and_record
from tests.training.processes import ForkedProcess
from tests.training.replicas_test import SIMPLE_MODEL
from tests.training.replicas_test import assert_same_training
from tpt_keras.models.load_model import load_model
from tpt_keras.training.state.logs import read_metrics

TRAINING = {
    "modules": [MODULE],
    "train_steps": 12,
    "batch_size": 17,
    "learning_rate": 1e-2,
    "adam_epsilon": 1e-5,
    # Three steps, where two are an execution.
    "validation_examples": 36,
    "steps_per_checkpoint": 2,
    "steps_per_evaluation": 4,
}
OPTIONS = {"evaluation_examples": 19, "steps_per_execution": 2}

pytestmark = [pytest.mark.slow, pytest.mark.jax]


@dataclasses.dataclass
class Workers:
    """The folders and logs of two workers."""

    folder: pathlib.Path
    outputs: list

    def records(self, name):
        """Both's records of one of their trainings."""
        return [
            dict(np.load(self.folder / f"{name}_{index}.npz"))
            for index in range(2)
        ]

    @property
    def model_dir(self):
        """The chief's folder of the training that nothing disturbed."""
        return self.folder / "model_0"


@pytest.fixture(scope="module")
def training(place_value_data):
    """Arguments of `train_and_record`, all but the folder."""
    return {
        "model": SIMPLE_MODEL,
        "training": {**TRAINING, "data_dir": str(place_value_data)},
        "options": OPTIONS,
    }


def trainings_of_worker(index, training, folder):
    """The jobs of a worker, for `distributed_driver`."""

    def job(name, model_dir, **changes):
        return {
            **training,
            "model_dir": str(folder / model_dir),
            "record": str(folder / f"{name}_{index}.npz"),
            **changes,
        }

    shorter = {**training["training"], "train_steps": 6}
    stop = {"evaluation_examples": 0}
    # The chief removes the checkpoint that it goes back to.
    rollback = {**stop, "on_nan": "rollback", "keep_checkpoints": 1}
    return [
        job("undisturbed", f"model_{index}"),
        job(
            "stopped",
            "rolled_back",
            training=shorter,
            options=stop,
            nan_before=3,
        ),
        job(
            "rolled_back",
            "rolled_back",
            training=shorter,
            options=rollback,
            nan_before=3,
        ),
    ]


@pytest.fixture(scope="module")
def workers(tmp_path_factory, training):
    """Two workers that train again and again, a process each.

    Undisturbed, with a model folder each, so that what the second would write
    is seen. Then in one folder: a training that stops, goes on, and is rolled
    back to a checkpoint that the second worker has not made.
    """
    folder = tmp_path_factory.mktemp("workers")
    started = []
    with processes.killed_at_the_end(started):
        for index, environment in enumerate(
            processes.cluster(processes.free_ports(2))
        ):
            job = {
                "strategy": {"distribution": "multi_worker_mirrored"},
                "trainings": trainings_of_worker(index, training, folder),
            }
            started.append(
                ForkedProcess(
                    "tests.training.distributed_driver",
                    json.dumps(job),
                    output=folder / f"output_{index}",
                    environment=environment,
                )
            )
        for process in started:
            assert process.wait() == 0, process.output
    return Workers(folder, [process.output for process in started])


def weights(record):
    return {
        name: values
        for name, values in record.items()
        if name.startswith("weights/")
    }


def test_two_workers_learn_what_one_process_does(workers, training, tmp_path):
    expected = train_and_record(**training, model_dir=tmp_path)
    assert_same_training(workers.records("undisturbed")[0], expected)


@pytest.mark.parametrize("name", ["undisturbed", "rolled_back"])
def test_workers_end_with_the_same_weights(workers, name):
    first, second = map(weights, workers.records(name))
    assert len(first) > 4
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values, err_msg=name)


def test_only_the_chief_writes(workers):
    assert {path.name for path in workers.model_dir.iterdir()} == FILES
    assert not (workers.folder / "model_1").exists()


def test_workers_recover_from_a_rollback_after_a_resume(workers):
    for output in workers.outputs:
        assert "The checkpoint of step 2 is kept." in output
        assert "Resuming from" in output
        assert output.count("Going back to step 2.") == 1
    for record in workers.records("rolled_back"):
        for name, values in record.items():
            assert np.all(np.isfinite(values)), name
    rows = read_metrics(workers.folder / "rolled_back")
    assert [row["step"] for row in rows] == [2, 4, 6]


FILES = {
    ".lock",
    "best.keras",
    "checkpoints",
    "config.json",
    "logs",
    "metrics.jsonl",
    "model.keras",
}


def test_killed_workers_go_on_as_if_nothing_had_been(
    workers, tmp_path, place_value_data
):
    """The command itself, with one model folder for both."""
    model_dir = tmp_path / "model"
    hparams = dict(SIMPLE_MODEL)
    preset = hparams.pop("preset")
    flags = [
        f"--{name}={','.join(value) if name == 'modules' else value}"
        for name, value in {**TRAINING, **OPTIONS}.items()
    ]
    environments = processes.cluster(processes.free_ports(2))
    started = []

    def start(attempt):
        pair = [
            ForkedProcess(
                "experiments.train",
                f"--preset={preset}",
                "--hparams=" + ",".join(f"{k}={v}" for k, v in hparams.items()),
                f"--data_dir={place_value_data}",
                f"--model_dir={model_dir}",
                *flags,
                output=tmp_path / f"output_{attempt}_{index}",
                environment=environment,
            )
            for index, environment in enumerate(environments)
        ]
        started.extend(pair)
        return pair

    with processes.killed_at_the_end(started):
        chief, other = start(1)
        chief.wait_until(lambda: len(read_metrics(model_dir)) >= 3)
        chief.kill()
        other.kill()
        assert not (model_dir / "model.keras").exists()
        for process in start(2):
            assert process.wait() == 0, process.output
            # The weights' own, not those that every worker starts with.
            assert "Resuming from" in process.output
    assert without_speeds(model_dir) == without_speeds(workers.model_dir)
    names = {path.name for path in model_dir.iterdir()}
    assert names == FILES | {"learning_curves.png"}
    model, expected = load_model(model_dir), load_model(workers.model_dir)
    for ours, theirs in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def without_speeds(model_dir):
    return [
        {k: v for k, v in row.items() if not k.endswith("_per_second")}
        for row in read_metrics(model_dir)
    ]

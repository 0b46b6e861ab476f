"""Workers, every one a process, and what Keras lacks for them.

Everything here has a time limit: a worker whose partner is gone waits.
"""

import dataclasses
import json

import keras
import numpy as np
import pytest

from tests.conftest import MODULE
from tests.training import processes
from tests.training.distributed_driver import train_and_record
from tests.training.distribution_test import MODEL
from tests.training.distribution_test import assert_same_training
from tests.training.processes import Process
from tpt_keras.models.load_model import load_model
from tpt_keras.training.metrics_log import read_metrics

TRAINING = {
    "modules": [MODULE],
    "train_steps": 12,
    "batch_size": 17,
    "learning_rate": 1e-2,
    "adam_epsilon": 1e-5,
    "validation_examples": 18,
    "steps_per_checkpoint": 2,
    "steps_per_evaluation": 4,
}
OPTIONS = {"evaluation_examples": 19}

pytestmark = pytest.mark.slow


@dataclasses.dataclass
class Workers:
    """What two workers left: the chief's folder, and both's records."""

    model_dir: object
    records: list
    other_folder: object


@pytest.fixture(scope="module")
def training(place_value_data):
    """Arguments of `train_and_record`, all but the folder."""
    return {
        "model": MODEL,
        "training": {**TRAINING, "data_dir": str(place_value_data)},
        "options": OPTIONS,
    }


@pytest.fixture(scope="module")
def workers(tmp_path_factory, training):
    """Two workers that nothing disturbed, with a model folder each.

    So that what the second would write is seen.
    """
    folder = tmp_path_factory.mktemp("workers")
    started = []
    with processes.killed_at_the_end(started):
        for index, environment in enumerate(
            processes.cluster(processes.free_ports(2))
        ):
            job = {
                "strategy": {"distribution": "multi_worker_mirrored"},
                "trainings": [
                    {
                        **training,
                        "model_dir": str(folder / f"model_{index}"),
                        "record": str(folder / f"{index}.npz"),
                    }
                ],
            }
            started.append(
                Process(
                    "tests.training.distributed_driver",
                    json.dumps(job),
                    output=folder / f"output_{index}",
                    environment=environment,
                )
            )
        for process in started:
            assert process.wait() == 0, process.output
    return Workers(
        folder / "model_0",
        [dict(np.load(folder / f"{index}.npz")) for index in range(2)],
        folder / "model_1",
    )


def weights(record):
    return {
        name: values
        for name, values in record.items()
        if name.startswith("weights/")
    }


def test_two_workers_learn_what_one_process_does(workers, training, tmp_path):
    expected = train_and_record(**training, model_dir=tmp_path)
    assert_same_training(workers.records[0], expected)


def test_workers_end_with_the_same_weights(workers):
    first, second = map(weights, workers.records)
    assert len(first) > 10
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values, err_msg=name)


def test_only_the_chief_writes(workers):
    assert {path.name for path in workers.model_dir.iterdir()} == FILES
    assert not workers.other_folder.exists()


FILES = {
    "best.keras",
    "checkpoints",
    "config.json",
    "learning_curves.png",
    "logs",
    "metrics.jsonl",
    "model.keras",
}


def test_killed_workers_go_on_as_if_nothing_had_been(
    workers, tmp_path, place_value_data
):
    """The command itself, with one model folder for both."""
    model_dir = tmp_path / "model"
    hparams = ",".join(f"{name}={value}" for name, value in MODEL.items())
    flags = [
        f"--{name}={','.join(value) if name == 'modules' else value}"
        for name, value in {**TRAINING, **OPTIONS}.items()
    ]
    environments = processes.cluster(processes.free_ports(2))
    started = []

    def start(attempt):
        pair = [
            Process(
                "experiments.train",
                f"--hparams={hparams}",
                f"--data_dir={place_value_data}",
                f"--model_dir={model_dir}",
                "--preset=tp_transformer",
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
            assert "Going on from" in process.output
    assert without_speeds(model_dir) == without_speeds(workers.model_dir)
    assert {path.name for path in model_dir.iterdir()} == FILES
    model, expected = load_model(model_dir), load_model(workers.model_dir)
    for ours, theirs in zip(model.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def without_speeds(model_dir):
    return [
        {k: v for k, v in row.items() if not k.endswith("_per_second")}
        for row in read_metrics(model_dir)
    ]


def errors_of_keras(folder, distribution, environments):
    """What the processes of `keras_fit_driver` print."""
    started = [
        Process(
            "tests.training.keras_fit_driver",
            distribution,
            output=folder / f"output_{index}",
            environment=environment,
        )
        for index, environment in enumerate(environments)
    ]
    with processes.killed_at_the_end(started):
        for process in started:
            assert process.wait() == 0, process.output
    return [json.loads(p.output.splitlines()[-1]) for p in started]


HEALED = (
    f"Keras {keras.__version__} does not fail here any more: see whether "
    "`MultiWorkerFit` can go."
)


@pytest.fixture(scope="module")
def errors_of_workers(tmp_path_factory):
    """With one worker, which Keras does not count as several, all is well."""
    return errors_of_keras(
        tmp_path_factory.mktemp("keras"),
        "multi_worker",
        processes.cluster(processes.free_ports(2)),
    )


def test_keras_cannot_build_symbolically_under_several_workers(
    errors_of_workers,
):
    """Why `_maybe_symbolic_build` is replaced, first: it fails always."""
    for errors in errors_of_workers:
        assert errors["stock"], HEALED
        assert "Attempt to convert a value (PerReplica" in errors["stock"]


def test_keras_cannot_reduce_the_results_of_several_workers(
    errors_of_workers,
):
    """Why results are made `reducible`."""
    for errors in errors_of_workers:
        error = errors["without symbolic build"]
        assert error, HEALED
        assert "Invalid reduction dimension 0" in error


def test_keras_cannot_build_symbolically_from_other_lengths(tmp_path):
    """Why `_maybe_symbolic_build` is replaced, second."""
    [errors] = errors_of_keras(tmp_path, "mirrored", [{}])
    assert errors["equal lengths"] is None
    assert errors["other lengths"], HEALED
    assert "must have the same size and shape" in errors["other lengths"]

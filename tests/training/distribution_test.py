import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import MODULE
from tests.training import processes
from tests.training.distributed_driver import train_and_record
from tests.training.processes import ForkedProcess
from tpt_keras.errors import UsageError
from tpt_keras.models.transformer_config import TransformerConfig
from tpt_keras.training.distribution import distributed_dataset
from tpt_keras.training.distribution import is_chief
from tpt_keras.training.distribution import make_strategy
from tpt_keras.training.distribution import of_chief
from tpt_keras.training.run_options import RunOptions
from tpt_keras.training.train import train
from tpt_keras.training.training_config import TrainingConfig
from tpt_keras.training.training_data import training_batches
from tpt_keras.training.training_data import training_sources
from tpt_keras.training.training_run import TrainingRun

MODEL = {
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "num_heads": 2,
    "num_layers": 1,
}

# Two replicas get 9 and 8 rows of a training batch; the last batch of the 18
# validation problems, and of the 19 of a split, leaves them one and none, and
# one each.
TRAINING = {
    "modules": [MODULE],
    "train_steps": 10,
    "batch_size": 17,
    "learning_rate": 1e-2,
    # Where an element of the gradient happens to be near zero, Adam would make
    # a step of its rounding.
    "adam_epsilon": 1e-5,
    "global_clipnorm": 0.1,
    "validation_examples": 18,
    "steps_per_checkpoint": 1,
    "steps_per_evaluation": 5,
}

# The 596 problems' last batch is a single one, for one replica, and one of its
# micro-batches. Evaluations of one step are less than an execution of two.
MICRO_BATCHES = {
    "training": {
        "batch_size": 85,
        "validation_examples": 4,
        "steps_per_checkpoint": 2,
        "steps_per_evaluation": 10,
    },
    "options": {"gradient_accumulation_steps": 3, "steps_per_execution": 2},
}

# What is trained on two replicas, and what has to be the same on one.
ON_TWO = {
    "plain": {},
    "in micro-batches": MICRO_BATCHES,
    "mixed_float16": {
        "training": {"precision": "mixed_float16", "train_steps": 4}
    },
}
ON_ONE = {
    "plain": {},
    "in micro-batches": {"training": MICRO_BATCHES["training"]},
}


def arguments(changes, data_dir, model_dir):
    """Arguments of `train_and_record`."""
    return {
        "model": MODEL,
        "training": {
            **TRAINING,
            **changes.get("training", {}),
            "data_dir": str(data_dir),
        },
        "model_dir": str(model_dir),
        "options": {"evaluation_examples": 19, **changes.get("options", {})},
    }


@pytest.fixture(scope="module")
def on_two(tmp_path_factory, place_value_data):
    """What trainings on two replicas recorded, by name.

    In another process, for TensorFlow has made its one CPU of this one's.
    """
    folder = tmp_path_factory.mktemp("two_replicas")
    trainings = [
        {
            **arguments(changes, place_value_data, folder / name),
            "record": str(folder / f"{name}.npz"),
        }
        for name, changes in ON_TWO.items()
    ]
    job = {
        "strategy": {"distribution": "mirrored", "logical_cpus": 2},
        "trainings": trainings,
    }
    process = ForkedProcess(
        "tests.training.distributed_driver",
        json.dumps(job),
        output=folder / "output",
    )
    with processes.killed_at_the_end([process]):
        assert process.wait() == 0, process.output
    return {name: dict(np.load(folder / f"{name}.npz")) for name in ON_TWO}


@pytest.fixture(scope="module")
def on_one(tmp_path_factory, place_value_data):
    """The same trainings on one device."""
    folder = tmp_path_factory.mktemp("one_replica")
    return {
        name: train_and_record(
            **arguments(changes, place_value_data, folder / name)
        )
        for name, changes in ON_ONE.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ON_ONE)
def test_two_replicas_learn_what_one_does(on_two, on_one, name):
    assert_same_training(on_two[name], on_one[name])


@pytest.mark.slow
def test_clipping_bites_where_replicas_are_compared(on_one):
    norms = on_one["plain"]["metrics/gradient_norm"]
    assert norms.shape == (10,)
    assert np.all(norms > 2 * TRAINING["global_clipnorm"])


@pytest.mark.slow
def test_two_replicas_train_with_mixed_float16(on_two, on_one):
    record = on_two["mixed_float16"]
    for name, values in record.items():
        assert np.all(np.isfinite(values)), name
    losses = record["metrics/loss"]
    assert losses[-1] < losses[0] - 1.0
    # No 1e-5 here: but neither another loss, nor one that is still scaled.
    for name in ("loss", "gradient_norm"):
        np.testing.assert_allclose(
            record[f"metrics/{name}"][0],
            on_one["plain"][f"metrics/{name}"][0],
            rtol=0.02,
        )


def assert_same_training(record, expected, tolerance=1e-5):
    """Metrics, and weights relative to the largest of their tensor.

    But for the biases of the attentions' keys: softmax takes no notice of
    them, so that their gradients are nothing but rounding, which Adam, who
    divides by the gradient's size, makes into steps as large as any.
    """
    assert record.keys() == expected.keys()
    for name, values in expected.items():
        if not name.endswith("key/bias"):
            error = np.max(np.abs(record[name] - values))
            assert error <= tolerance * np.max(np.abs(values)), name


def test_one_device_needs_no_strategy(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for distribution in (None, "none"):
        strategy = make_strategy(distribution)
        assert strategy is tf.distribute.get_strategy()
        assert strategy.num_replicas_in_sync == 1


def test_mirrored_uses_the_devices_that_there_are():
    strategy = make_strategy("mirrored", num_gpus=0)
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert [
        tf.DeviceSpec.from_string(device).device_type
        for device in strategy.extended.worker_devices
    ] == ["CPU"]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"distribution": "mirored"}, "'mirored'.*multi_worker_mirrored"),
        ({"num_gpus": 99}, "--num_gpus=99, but this machine has"),
        ({"num_gpus": -1}, "--num_gpus=-1, but this machine has"),
        ({"logical_cpus": 0}, "--logical_cpus must be positive"),
    ],
)
def test_refused(monkeypatch, kwargs, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UsageError, match=message):
        make_strategy(**kwargs)


def test_logical_cpus_are_refused_beside_gpus(monkeypatch):
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: [f"{kind}:0"]
    )
    with pytest.raises(UsageError, match="for machines without GPUs"):
        make_strategy("mirrored", logical_cpus=2)


def test_several_workers_need_tf_config(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UsageError, match="variable TF_CONFIG on every machine"):
        make_strategy("multi_worker_mirrored")


def test_tf_config_makes_it_several_workers(monkeypatch):
    # A real one starts a server, for the life of the process.
    strategy = object()
    monkeypatch.setattr(
        tf.distribute, "MultiWorkerMirroredStrategy", lambda: strategy
    )
    [environment] = processes.cluster([1])
    monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
    assert make_strategy() is strategy
    assert make_strategy("multi_worker_mirrored") is strategy
    # But what was asked for goes before.
    assert make_strategy("none") is tf.distribute.get_strategy()


class OfCluster:
    """A strategy, as far as its place in a cluster goes."""

    def __init__(self, jobs, task_type, task_id):
        self.cluster_resolver = (
            tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec(
                    {job: ["localhost:1", "localhost:2"] for job in jobs}
                ),
                task_type=task_type,
                task_id=task_id,
            )
        )


@pytest.mark.parametrize(
    ("jobs", "task", "expected"),
    [
        (["worker"], ("worker", 0), True),
        (["worker"], ("worker", 1), False),
        (["chief", "worker"], ("chief", 0), True),
        (["chief", "worker"], ("worker", 0), False),
        # TF_CONFIG is empty.
        ([], (None, None), True),
    ],
)
def test_the_chief(jobs, task, expected):
    assert is_chief(OfCluster(jobs, *task)) is expected


@pytest.mark.parametrize("distribution", ["none", "mirrored"])
def test_on_its_own_a_worker_of_tf_config_is_a_chief(monkeypatch, distribution):
    _, environment = processes.cluster([1, 2])
    monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
    strategy = make_strategy(distribution, num_gpus=0)
    assert is_chief(strategy)
    assert of_chief(strategy, 7) == 7


def test_on_its_own_a_worker_of_tf_config_keeps_what_it_trains(
    monkeypatch, tmp_path, tiny_config, tiny_training
):
    _, environment = processes.cluster([1, 2])
    monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
    monkeypatch.setattr(TrainingRun, "run", lambda self: None)
    train(tiny_config, tiny_training, tmp_path, strategy=make_strategy("none"))
    assert {"config.json", "checkpoints", "model.keras"} <= {
        path.name for path in tmp_path.iterdir()
    }


def test_several_replicas_are_not_compiled(
    tmp_path, tiny_config, tiny_training
):
    with pytest.raises(UsageError, match="4 replicas cannot be compiled"):
        train(
            tiny_config,
            tiny_training,
            tmp_path / "model",
            options=RunOptions(jit_compile=True),
            strategy=StandInStrategy(),
        )
    assert not (tmp_path / "model").exists()


class StandInStrategy:
    """Two workers of two replicas each, as far as datasets go."""

    num_replicas_in_sync = 4

    def distribute_datasets_from_function(self, of_worker):
        return [
            of_worker(tf.distribute.InputContext(2, worker, 4))
            for worker in range(2)
        ]


@pytest.fixture(scope="module")
def batches(place_value_data):
    training = TrainingConfig(**TRAINING, data_dir=str(place_value_data))
    return training_batches(
        training_sources(training), TransformerConfig(**MODEL), training
    )[0]


def test_the_workers_parts_of_a_batch_are_the_batch(batches):
    first, second = distributed_dataset(
        StandInStrategy(), batches, start_step=3
    )
    # Every worker's replicas take turns.
    parts = [
        targets.numpy()
        for dataset in (first, second)
        for _, targets in dataset.take(2)
    ]
    _, expected = next(batches.iterate(start_step=3))
    assert [len(part) for part in parts] == [5, 4, 4, 4]
    rows = sorted(tuple(np.trim_zeros(row)) for row in itertools.chain(*parts))
    assert rows == sorted(tuple(np.trim_zeros(row)) for row in expected)


def test_every_worker_has_as_many_parts(batches):
    datasets = distributed_dataset(StandInStrategy(), batches, num_epochs=1)
    for dataset in datasets:
        # Of two replicas each, also where the last batch leaves one nothing.
        assert int(dataset.cardinality()) == 2 * batches.steps_per_epoch


def test_one_replica_reads_the_batches_themselves(batches):
    strategy = tf.distribute.get_strategy()
    dataset = distributed_dataset(strategy, batches, 3, num_epochs=1)
    assert int(dataset.cardinality()) == batches.steps_per_epoch - 3
    _, targets = next(iter(dataset))
    np.testing.assert_array_equal(
        targets, next(batches.iterate(start_step=3))[1]
    )

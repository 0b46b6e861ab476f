import itertools
import types

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("of TensorFlow alone", allow_module_level=True)

import tensorflow as tf

from tests.conftest import MODULE
from tests.training import processes
from tpt_keras.data_generators import training_task
from tpt_keras.data_generators.task import split_batches
from tpt_keras.errors import UsageError
from tpt_keras.training.backends import CurrentBackend
from tpt_keras.training.backends import make_strategy
from tpt_keras.training.config import TrainingConfig


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


def test_logical_cpus_are_refused_beside_gpus(monkeypatch):
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: [f"{kind}:0"]
    )
    with pytest.raises(UsageError):
        make_strategy("mirrored", logical_cpus=2)


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
    addresses = {job: ["localhost:1", "localhost:2"] for job in jobs}
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(addresses), "", *task
    )
    strategy = types.SimpleNamespace(
        num_replicas_in_sync=1, cluster_resolver=resolver
    )
    assert CurrentBackend(strategy).is_chief is expected


@pytest.mark.parametrize("distribution", ["none", "mirrored"])
def test_on_its_own_a_worker_of_tf_config_is_a_chief(monkeypatch, distribution):
    _, environment = processes.cluster([1, 2])
    monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
    backend = CurrentBackend(make_strategy(distribution, num_gpus=0))
    assert backend.is_chief
    assert backend.broadcast(7) == 7


class StandInStrategy:
    """Two workers of two replicas each, as far as datasets go."""

    num_replicas_in_sync = 4
    cluster_resolver = None

    def distribute_datasets_from_function(self, of_worker):
        return [
            of_worker(tf.distribute.InputContext(2, worker, 4))
            for worker in range(2)
        ]


@pytest.fixture(scope="module")
def batches(place_value_data, tiny_config):
    training = TrainingConfig.from_flat(
        modules=[MODULE],
        data_dir=str(place_value_data),
        batch_size=17,
        validation_examples=18,
    )
    return split_batches(training_task(training), tiny_config, training)[0]


def test_the_workers_parts_of_a_batch_are_the_batch(batches):
    backend = CurrentBackend(StandInStrategy())
    first, second = backend.feed(None, batches, 3, None)
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
    backend = CurrentBackend(StandInStrategy())
    for dataset in backend.feed(None, batches, 0, 1):
        # Of two replicas each, also where the last batch leaves one nothing.
        assert int(dataset.cardinality()) == 2 * batches.steps_per_epoch

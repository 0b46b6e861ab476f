"""Devices and processes of a training on JAX."""

import json
import types

import keras
import pytest

from tests.training import processes
from tpt_keras.errors import UsageError

if keras.backend.backend() != "jax":
    pytest.skip("of JAX alone", allow_module_level=True)

import jax
from jax.experimental import multihost_utils

from tpt_keras.training.backends import broadcast
from tpt_keras.training.backends import default_strategy
from tpt_keras.training.backends import is_chief
from tpt_keras.training.backends import make_strategy
from tpt_keras.training.backends import num_replicas
from tpt_keras.training.backends import num_workers
from tpt_keras.training.backends import scope
from tpt_keras.training.backends.jax_devices import rows_of_process

pytestmark = pytest.mark.jax


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.mark.parametrize("distribution", [None, "none"])
def test_one_device_needs_no_strategy(distribution):
    assert make_strategy(distribution, logical_cpus=1) is None
    assert num_replicas(None) == 1
    with scope(None):
        assert default_strategy() is None


def test_mirrored_uses_the_devices_that_there_are():
    strategy = make_strategy("mirrored", num_gpus=0)
    assert isinstance(strategy, keras.distribution.DataParallel)
    assert strategy.device_mesh.devices.tolist() == ["cpu:0"]
    assert num_replicas(strategy) == 1
    with scope(strategy):
        assert default_strategy() is strategy
    assert default_strategy() is None


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"distribution": "mirored"}, "'mirored'.*multi_worker_mirrored"),
        ({"num_gpus": 99}, "--num_gpus=99, but this machine has"),
        ({"num_gpus": -1}, "--num_gpus=-1, but this machine has"),
        ({"logical_cpus": 0}, "--logical_cpus must be positive"),
        # The devices of this process are there already.
        ({"logical_cpus": 9}, "--logical_cpus=9 comes too late"),
    ],
)
def test_refused(kwargs, message):
    keras.distribution.list_devices()
    with pytest.raises(UsageError):
        make_strategy(**kwargs)


@pytest.fixture
def met(monkeypatch):
    """Records the arguments that `jax.distributed` is started with."""
    met = []
    monkeypatch.setattr(
        jax.distributed, "initialize", lambda *args, **kwargs: met.append(args)
    )
    # Of several processes, which this one is not.
    monkeypatch.setattr(
        multihost_utils, "sync_global_devices", lambda name: met.append(name)
    )
    return met


def test_tf_config_makes_it_several_workers(monkeypatch, met):
    _, environment = processes.cluster([1, 2])
    monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
    for distribution in (None, "multi_worker_mirrored"):
        strategy = make_strategy(distribution, num_gpus=0)
        assert isinstance(strategy, keras.distribution.DataParallel)
        # The trainer shards them.
        assert not strategy.auto_shard_dataset
    # And they connect at once.
    assert met == [("localhost:1", 2, 1), "all are there"] * 2
    # But what was asked for goes before.
    assert make_strategy("none") is None
    assert len(met) == 4


def test_a_chief_of_tf_config_is_the_first(monkeypatch, met):
    cluster = {"worker": ["b:2", "c:3"], "chief": ["a:1"]}
    for number, task in enumerate([("chief", 0), ("worker", 0), ("worker", 1)]):
        task = dict(zip(("type", "index"), task))
        config = {"cluster": cluster, "task": task}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        make_strategy(num_gpus=0)
        assert met[-2] == ("a:1", 3, number)


@pytest.mark.parametrize(
    "config",
    [
        None,
        "one:2222",
        "[]",
        "{}",
        '{"cluster": {"worker": ["a:1"]}, "task": {"type": "ps", "index": 0}}',
    ],
)
def test_several_workers_need_tf_config(monkeypatch, met, config):
    if config:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UsageError):
        make_strategy("multi_worker_mirrored")
    assert not met


@pytest.mark.parametrize("own", [0, 1])
def test_several_workers_need_as_many_devices_each(monkeypatch, met, own):
    """All of them say so: or one would wait for the others."""
    [environment] = processes.cluster([1])
    monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
    devices = 2 * [types.SimpleNamespace(platform="gpu")]

    def local_devices(process=own, backend=None):
        return devices[process:]

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(jax, "local_devices", local_devices)
    with pytest.raises(UsageError):
        make_strategy()


def test_the_only_process_is_the_chief():
    for strategy in (None, make_strategy("mirrored", num_gpus=0)):
        assert num_workers(strategy) == 1
        assert is_chief(strategy)
        assert broadcast(strategy, 7) == 7
        assert rows_of_process(strategy, 18) == slice(0, 18)

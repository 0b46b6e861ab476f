"""Where a training runs on JAX; `make test` runs it there."""

import keras
import pytest

from tests.training import processes
from tpt_keras.errors import UsageError

if keras.backend.backend() != "jax":
    pytest.skip("of JAX alone", allow_module_level=True)

from tpt_keras.training.distribution import default_strategy
from tpt_keras.training.distribution import is_chief
from tpt_keras.training.distribution import make_strategy
from tpt_keras.training.distribution import num_replicas
from tpt_keras.training.distribution import of_chief
from tpt_keras.training.distribution import scope


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
        ({"distribution": "multi_worker_mirrored"}, "BACKEND=tensorflow"),
    ],
)
def test_refused(kwargs, message):
    keras.distribution.list_devices()
    with pytest.raises(UsageError, match=message):
        make_strategy(**kwargs)


def test_several_workers_are_refused(monkeypatch):
    [environment] = processes.cluster([1])
    monkeypatch.setenv("TF_CONFIG", environment["TF_CONFIG"])
    with pytest.raises(UsageError, match=r"machines.*BACKEND=tensorflow"):
        make_strategy()
    # But what was asked for goes before.
    assert make_strategy("none") is None


def test_the_only_process_is_the_chief():
    assert is_chief(None)
    assert of_chief(None, 7) == 7

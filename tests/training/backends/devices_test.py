"""The devices and workers of trainings that may have several."""

import json

import keras
import pytest

if keras.backend.backend() == "torch":
    pytest.skip("torch trains on one device", allow_module_level=True)

from tests.refusals import refused
from tpt_keras.training.backends import make_strategy
from tpt_keras.training.backends.backend import read_workers

pytestmark = pytest.mark.jax


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("distribution", "mirored"),
        ("num_gpus", 99),
        ("num_gpus", -1),
        ("logical_cpus", 0),
    ],
)
def test_wrong_devices_are_refused(monkeypatch, field, value):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with refused(field):
        make_strategy(**{field: value})


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
def test_several_workers_need_tf_config(monkeypatch, config):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config:
        monkeypatch.setenv("TF_CONFIG", config)
    with refused("distribution"):
        make_strategy("multi_worker_mirrored")


@pytest.mark.parametrize(
    ("number", "task"),
    # An index may be a string, as for TensorFlow.
    [(0, ("chief", 0)), (1, ("worker", "0")), (2, ("worker", 1))],
)
def test_the_chief_is_the_first_worker(monkeypatch, number, task):
    config = {
        "cluster": {"worker": ["b:2", "c:3"], "chief": ["a:1"]},
        "task": dict(zip(("type", "index"), task)),
    }
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert read_workers() == (["a:1", "b:2", "c:3"], number)

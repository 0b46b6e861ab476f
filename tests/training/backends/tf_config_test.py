"""TF_CONFIG, on every backend that trains in several processes."""

import keras
import pytest

if keras.backend.backend() == "torch":
    pytest.skip("no several processes on torch", allow_module_level=True)

from tpt_keras.errors import UsageError
from tpt_keras.training.backends import make_strategy
from tpt_keras.training.backends.backend import read_workers

pytestmark = pytest.mark.jax


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
def test_several_workers_need_it(monkeypatch, config):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if config:
        monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(UsageError) as caught:
        make_strategy("multi_worker_mirrored")
    assert caught.value.field == "distribution"


def test_an_index_may_be_a_string(monkeypatch):
    """As for TensorFlow."""
    monkeypatch.setenv(
        "TF_CONFIG",
        '{"cluster": {"worker": ["a:1", "b:2"]},'
        ' "task": {"type": "worker", "index": "1"}}',
    )
    assert read_workers() == (["a:1", "b:2"], 1)

"""The step, the devices and the processes of a training on JAX."""

import contextlib
import functools
import threading
import types

import keras
import numpy as np
import pytest

from tests.refusals import refused
from tests.training import processes
from tpt_keras.errors import UsageError
from tpt_keras.models import build_model
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.train import train
from tpt_keras.training.trainer import Trainer

if keras.backend.backend() != "jax":
    pytest.skip("of JAX alone", allow_module_level=True)

import jax
from jax.experimental import multihost_utils

from tpt_keras.training.backends import CurrentBackend
from tpt_keras.training.backends import make_strategy
from tpt_keras.training.backends.jax import QUEUED_STEPS

pytestmark = pytest.mark.jax

IDS = np.ones((2, 4), "int32")
BATCH = {"encoder_token_ids": IDS, "decoder_token_ids": IDS}, IDS


@pytest.mark.slow
def test_every_shape_is_compiled_once_and_logged(
    tmp_path, simple_config, tiny_training, logged
):
    threads = threading.active_count()
    shapes = []
    train_step = Trainer.track

    def track(self, *args):
        shapes.append(None)
        return train_step(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "track", track)
        train(simple_config, tiny_training, tmp_path)
    lines = [line for line in logged().splitlines() if "Compiling" in line]
    # Of the training and of the evaluation.
    assert len(lines) == len(shapes)
    assert 2 <= len(lines) <= 12
    # The prefetching threads have ended.
    assert threading.active_count() == threads


class BatchLogs(keras.callbacks.Callback):
    def __init__(self, logged):
        super().__init__()
        self.logged = logged
        self.losses = []
        # Before the first step, and later.
        self.compiled = []

    def on_train_begin(self, logs=None):
        self.compiled.append(self.logged().count("Compiling"))

    on_train_end = on_train_begin

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))


@pytest.mark.slow
@pytest.mark.parametrize("distribution", ["none", "mirrored"])
def test_an_accelerator_has_its_steps_ahead(
    tmp_path, simple_config, tiny_training, monkeypatch, logged, distribution
):
    strategy = make_strategy(distribution, num_gpus=0)
    n = QUEUED_STEPS + 4
    config = tiny_training.replace(train_steps=n, steps_per_evaluation=n)
    found = {}
    for platform in ("cpu", "gpu"):
        named = functools.partial(str, platform)
        monkeypatch.setattr(jax, "default_backend", named)
        found[platform] = BatchLogs(logged)
        train(
            *(simple_config, config, tmp_path / platform, None, strategy),
            callbacks=[found[platform]],
        )
    losses = [read_metrics(tmp_path / platform) for platform in found]
    # Other lengths of padding change roundings alone.
    close = functools.partial(pytest.approx, rel=1e-5)
    assert losses[0][-1]["loss"] == close(losses[1][-1]["loss"])
    of_steps, earlier = found["cpu"].losses, found["gpu"].losses
    assert earlier[QUEUED_STEPS:] == close(of_steps[1 : 1 - QUEUED_STEPS])
    assert found["cpu"].compiled[0] == 0
    ahead, later = found["gpu"].compiled
    # Later come the two batches of the evaluation.
    assert ahead >= 3 > later


def test_logs_of_a_step_alone_are_its_own(simple_config):
    """Within an epoch, they are those of the step before."""
    keras.utils.set_random_seed(1)
    trainer = Trainer(build_model(simple_config, "float32"))
    trainer.compile("sgd")
    losses = []
    for _ in range(2):
        trainer.reset_metrics()
        losses.append(trainer.train_on_batch(*BATCH)[0])
    assert losses[1] < losses[0]


def test_run_eagerly_compiles_nothing(simple_config):
    class Optimizer(keras.optimizers.SGD):
        def update_step(self, gradient, variable, learning_rate):
            assert not isinstance(gradient, jax.core.Tracer)
            super().update_step(gradient, variable, learning_rate)
            updated.append(variable)

    updated = []
    trainer = Trainer(build_model(simple_config, "float32"))
    trainer.compile(Optimizer(), run_eagerly=True)
    trainer.train_on_batch(*BATCH)
    assert len(updated) == len(trainer.trainable_variables)


def test_feed_does_not_wait_for_its_batches(simple_config):
    class Slow:
        batch_size = 2
        waits, ended = threading.Event(), threading.Event()

        @contextlib.contextmanager
        def opened(self):
            yield
            self.ended.set()

        def iterate(self, start_step, num_epochs):
            yield BATCH
            self.waits.set()
            found.append(self.ended.wait(60))

    found = []
    trainer = Trainer(build_model(simple_config, "float32"))
    with trainer.feed(Slow()) as feed:
        next(feed)
        assert Slow.waits.wait(60)
    assert found == [True]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.mark.parametrize("distribution", [None, "none"])
def test_one_device_needs_no_strategy(distribution):
    assert make_strategy(distribution, logical_cpus=1) is None
    backend = CurrentBackend()
    assert backend.num_replicas == 1
    with backend.scope():
        assert CurrentBackend().strategy is None


def test_mirrored_uses_the_devices_that_there_are():
    strategy = make_strategy("mirrored", num_gpus=0)
    assert isinstance(strategy, keras.distribution.DataParallel)
    assert strategy.device_mesh.devices.tolist() == ["cpu:0"]
    backend = CurrentBackend(strategy)
    assert backend.num_replicas == 1
    with backend.scope():
        assert CurrentBackend().strategy is strategy
    assert CurrentBackend().strategy is None


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


def test_logical_cpus_come_before_jax_starts():
    keras.distribution.list_devices()
    with refused("logical_cpus"):
        make_strategy(logical_cpus=9)


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

"""Where a training runs on JAX: a `DataParallel` of Keras, or `None`."""

import contextlib
import os

import jax
import keras

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.training.distributions import DISTRIBUTIONS


def make_strategy(distribution=None, num_gpus=None, logical_cpus=None):
    """The `keras.distribution.DataParallel` of a training.

    Args:
        distribution: One of `DISTRIBUTIONS`. Defaults to `"mirrored"` where
            there is more than one device, and to `"none"` elsewhere.
        num_gpus: How many of the GPUs to use. Defaults to all.
        logical_cpus: Number of devices to cut the processor into, to try a
            distribution out without GPUs.

    Returns:
        A `DataParallel`; `None` for one device.

    Raises:
        UsageError: If there are not as many devices as asked for, or if
            several machines are.
    """
    if distribution is None and "TF_CONFIG" in os.environ:
        distribution = "multi_worker_mirrored"
    check_names("distribution", [distribution or "none"], DISTRIBUTIONS)
    if distribution == "multi_worker_mirrored":
        raise UsageError(
            "Training on several machines, --distribution="
            "multi_worker_mirrored or a TF_CONFIG, needs "
            "KERAS_BACKEND=tensorflow: on JAX there is --distribution="
            "mirrored, on the devices of one machine."
        )
    devices = _devices(num_gpus, logical_cpus)
    if distribution is None:
        distribution = "mirrored" if len(devices) > 1 else "none"
    if distribution == "mirrored":
        return keras.distribution.DataParallel(devices=devices)
    # Of several, not the first one that JAX sees.
    jax.config.update("jax_default_device", _device(devices[0]))
    return None


def _devices(num_gpus, logical_cpus):
    if logical_cpus is not None and logical_cpus >= 1:
        _cut_processor(logical_cpus)
    gpus = [
        name
        for name in keras.distribution.list_devices()
        if not name.startswith("cpu")
    ]
    if num_gpus is not None:
        if not 0 <= num_gpus <= len(gpus):
            raise UsageError(
                f"--num_gpus={num_gpus}, but this machine has {len(gpus)}."
            )
        gpus = gpus[:num_gpus]
    if logical_cpus is None:
        return gpus or ["cpu:0"]
    if gpus or logical_cpus < 1:
        raise UsageError(
            "--logical_cpus must be positive, and is for machines without "
            "GPUs or with --num_gpus=0."
        )
    cpus = keras.distribution.list_devices("cpu")
    if len(cpus) < logical_cpus:
        raise UsageError(
            f"--logical_cpus={logical_cpus} comes too late: JAX runs on "
            f"{len(cpus)} already."
        )
    return cpus[:logical_cpus]


def _cut_processor(logical_cpus):
    # JAX refuses where it has its devices already, which may be enough.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", logical_cpus)


def _device(name):
    platform, _, index = name.partition(":")
    return next(
        device for device in jax.devices(platform) if device.id == int(index)
    )


def default_strategy():
    """The strategy where none is given: that of the scope one is in."""
    return keras.distribution.distribution()


def num_replicas(strategy):
    """The number of devices that a batch is distributed over."""
    return strategy.num_model_replicas if strategy else 1


def num_workers(strategy):
    """The number of processes that train together: there is but one."""
    return 1


def scope(strategy):
    """Where a strategy's model and optimizer are made, and get values."""
    return strategy.scope() if strategy else contextlib.nullcontext()


def check_jit_compile(strategy):
    """Nothing to refuse: JAX compiles the step of any number of devices."""


def is_chief(strategy):
    """Whether this process writes the training's files: there is no other."""
    return True


def of_chief(strategy, number):
    """The chief's number: that of the only process."""
    return number

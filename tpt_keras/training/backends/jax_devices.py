"""Where a training runs on JAX: a `DataParallel` of Keras, or `None`."""

import contextlib
import json
import os

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.training.config import DISTRIBUTIONS

start_profile = jax.profiler.start_trace
stop_profile = jax.profiler.stop_trace


def make_strategy(distribution=None, num_gpus=None, logical_cpus=None):
    """The `keras.distribution.DataParallel` of a training.

    Args:
        distribution: One of `DISTRIBUTIONS`. Defaults to `"mirrored"` where
            there is more than one device, `"multi_worker_mirrored"` where
            there is a TF_CONFIG, and to `"none"` elsewhere.
        num_gpus: How many of the GPUs to use. Defaults to all.
        logical_cpus: Number of devices to cut the processor into, to try a
            distribution out without GPUs.

    Returns:
        A `DataParallel`; `None` for one device.

    Raises:
        UsageError: If there are not as many devices as asked for, or if
            TF_CONFIG does not tell who trains together.
    """
    if distribution is None and "TF_CONFIG" in os.environ:
        distribution = "multi_worker_mirrored"
    check_names("distribution", [distribution or "none"], DISTRIBUTIONS)
    if logical_cpus is not None and logical_cpus >= 1:
        _cut_processor(logical_cpus)
    if distribution == "multi_worker_mirrored":
        _meet_the_others()
    devices = _devices(num_gpus, logical_cpus)
    if distribution is None:
        distribution = "mirrored" if len(devices) > 1 else "none"
    if distribution == "multi_worker_mirrored":
        is_cpu = devices[0].platform == "cpu"
        devices = _of_all_processes(
            devices[0].platform, (logical_cpus or 1) if is_cpu else num_gpus
        )
    if distribution != "none":
        # `JaxSteps.feed` gives every process its part.
        return keras.distribution.DataParallel(
            devices=_names(devices), auto_shard_dataset=False
        )
    # Of several, not the first one that JAX sees.
    jax.config.update("jax_default_device", devices[0])
    return None


def _cut_processor(logical_cpus):
    # JAX refuses where it has its devices already, which may be enough.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", logical_cpus)


def _meet_the_others():
    """Starts `jax.distributed`, with what TensorFlow's TF_CONFIG says."""
    if jax.distributed.is_initialized():
        return
    try:
        config = json.loads(os.environ["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        workers = {
            (job, index): address
            for job in ("chief", "worker")
            for index, address in enumerate(cluster.get(job, ()))
        }
        number = list(workers).index((task["type"], task["index"]))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise UsageError(
            "--distribution=multi_worker_mirrored needs the environment "
            "variable TF_CONFIG on every machine: the addresses of all "
            "workers and the index of this one. See docs/training.md."
        ) from None
    # It would take SIGTERM for itself, which is to end a command.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        next(iter(workers.values())),
        len(workers),
        number,
        # Slurm's and others' variables would hide all devices but one.
        cluster_detection_method="deactivate",
    )
    # They connect when they first compute together, and wait 30 seconds for
    # each other then: now, before one of them has more to read.
    multihost_utils.sync_global_devices("all are there")


def _devices(num_gpus, logical_cpus):
    """Those of this process."""
    gpus = [d for d in jax.local_devices() if d.platform != "cpu"]
    if num_gpus is not None:
        if not 0 <= num_gpus <= len(gpus):
            raise UsageError(
                f"--num_gpus={num_gpus}, but this machine has {len(gpus)}."
            )
        gpus = gpus[:num_gpus]
    if logical_cpus is None:
        return gpus or jax.local_devices(backend="cpu")[:1]
    if gpus or logical_cpus < 1:
        raise UsageError(
            "--logical_cpus must be positive, and is for machines without "
            "GPUs or with --num_gpus=0."
        )
    cpus = jax.local_devices(backend="cpu")
    if len(cpus) < logical_cpus:
        raise UsageError(
            f"--logical_cpus={logical_cpus} comes too late: JAX runs on "
            f"{len(cpus)} already."
        )
    return cpus[:logical_cpus]


def _of_all_processes(platform, count):
    """As many devices of every process, in the processes' order."""
    of_all = [
        jax.local_devices(process, backend=platform)[:count]
        for process in range(jax.process_count())
    ]
    if len({len(of_one) for of_one in of_all}) > 1:
        raise UsageError(
            "The machines have different numbers of devices, of which every "
            f"one gets as many rows: {', '.join(map(str, map(len, of_all)))}. "
            "Take as many of each (--num_gpus)."
        )
    return [device for of_one in of_all for device in of_one]


def _names(devices):
    """As `keras.distribution` calls them."""
    return [f"{device.platform}:{device.id}" for device in devices]


def default_strategy():
    """The strategy where none is given: that of the scope one is in."""
    return keras.distribution.distribution()


def num_replicas(strategy):
    """The number of devices that a batch is distributed over."""
    return strategy.num_model_replicas if strategy else 1


def num_workers(strategy):
    """The number of processes that train together."""
    return len(_processes(strategy))


def rows_of_process(strategy, rows):
    """Which rows of a batch lie on the devices of this process.

    Args:
        strategy: The training's strategy.
        rows: How many rows a batch has, a multiple of the replicas.

    Returns:
        A slice.
    """
    processes = _processes(strategy)
    size = rows // len(processes)
    start = size * processes.index(jax.process_index())
    return slice(start, start + size)


def _processes(strategy):
    """The numbers of the processes that a strategy has devices of."""
    if strategy is None:
        return [jax.process_index()]
    devices = strategy.device_mesh.backend_mesh.devices.flat
    return sorted({device.process_index for device in devices})


def scope(strategy):
    """Where a strategy's model and optimizer are made, and get values."""
    return strategy.scope() if strategy else contextlib.nullcontext()


def check_jit_compile(strategy):
    """Nothing to refuse: JAX compiles the step of any number of devices."""


def is_chief(strategy):
    """Whether this process is the one of its training that writes files."""
    return jax.process_index() == _processes(strategy)[0]


def broadcast(strategy, number):
    """The chief's number, in all of a training's processes.

    All have to ask, and go on together, when the last of them has.

    Args:
        strategy: The training's strategy.
        number: An integer.

    Returns:
        The integer that the chief gave.
    """
    if num_workers(strategy) == 1:
        return number
    return int(
        multihost_utils.broadcast_one_to_all(
            np.int32(number), is_source=is_chief(strategy)
        )
    )

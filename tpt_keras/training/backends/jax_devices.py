"""The devices of a training on JAX: a Keras `DataParallel`, or `None`."""

import contextlib
import json
import os

import jax
import keras
import numpy as np
from jax.experimental import multihost_utils

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choices
from tpt_keras.training.config import DISTRIBUTIONS

start_profile = jax.profiler.start_trace
stop_profile = jax.profiler.stop_trace


def make_strategy(distribution=None, num_gpus=None, logical_cpus=None):
    """The `keras.distribution.DataParallel` of a training.

    Args:
        distribution: One of `DISTRIBUTIONS`. Defaults to `"mirrored"` where
            there is more than one device, `"multi_worker_mirrored"` with a
            TF_CONFIG, and `"none"` otherwise.
        num_gpus: Number of GPUs to use. Defaults to all.
        logical_cpus: Number of devices to divide the CPU into, to try a
            distribution without GPUs.

    Returns:
        A `DataParallel`; `None` for one device.

    Raises:
        UsageError: If there are fewer devices, or if TF_CONFIG is missing or
            incomplete.
    """
    if distribution is None and "TF_CONFIG" in os.environ:
        distribution = "multi_worker_mirrored"
    check_choices("distribution", [distribution or "none"], DISTRIBUTIONS)
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
        # `Placement.feed` gives every process its part.
        return keras.distribution.DataParallel(
            devices=_names(devices), auto_shard_dataset=False
        )
    # Not always the first one that JAX sees.
    jax.config.update("jax_default_device", devices[0])
    return None


def _cut_processor(logical_cpus):
    # JAX refuses if it has its devices already. They may be enough.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", logical_cpus)


def _meet_the_others():
    """Starts `jax.distributed` from TensorFlow's TF_CONFIG."""
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
            "The `distribution` multi_worker_mirrored needs the variable "
            "TF_CONFIG on every machine: the addresses of all workers and the "
            "index of this one. See docs/training.md.",
            field="distribution",
        ) from None
    # It would catch SIGTERM, which has to end a command.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        next(iter(workers.values())),
        len(workers),
        number,
        # Slurm's variables would hide all devices but one.
        cluster_detection_method="deactivate",
    )
    # They connect at their first computation, and wait for 30 seconds. This is
    # early enough: later, one may still be reading its data.
    multihost_utils.sync_global_devices("all are there")


def _devices(num_gpus, logical_cpus):
    """Returns the devices of this process."""
    gpus = [d for d in jax.local_devices() if d.platform != "cpu"]
    if num_gpus is not None:
        if not 0 <= num_gpus <= len(gpus):
            raise UsageError(
                f"This machine has {len(gpus)} GPUs. Received: `num_gpus` "
                f"{num_gpus}.",
                field="num_gpus",
            )
        gpus = gpus[:num_gpus]
    if logical_cpus is None:
        return gpus or jax.local_devices(backend="cpu")[:1]
    if gpus or logical_cpus < 1:
        raise UsageError(
            "`logical_cpus` must be positive, and needs a machine without "
            "GPUs, or a `num_gpus` of 0.",
            field="logical_cpus",
        )
    cpus = jax.local_devices(backend="cpu")
    if len(cpus) < logical_cpus:
        raise UsageError(
            f"JAX runs on {len(cpus)} logical CPUs already. Received: "
            f"`logical_cpus` {logical_cpus}.",
            field="logical_cpus",
        )
    return cpus[:logical_cpus]


def _of_all_processes(platform, count):
    """Returns `count` devices of every process, in the processes' order."""
    of_all = [
        jax.local_devices(process, backend=platform)[:count]
        for process in range(jax.process_count())
    ]
    if len({len(of_one) for of_one in of_all}) > 1:
        raise UsageError(
            "All machines must have the same number of devices. Received: "
            f"{', '.join(map(str, map(len, of_all)))}. Set `num_gpus`.",
            field="num_gpus",
        )
    return [device for of_one in of_all for device in of_one]


def _names(devices):
    """Returns the names of devices in `keras.distribution`."""
    return [f"{device.platform}:{device.id}" for device in devices]


def default_strategy():
    """Returns the strategy of the current scope."""
    return keras.distribution.distribution()


def num_replicas(strategy):
    """Returns the number of devices that a batch is distributed over."""
    return strategy.num_model_replicas if strategy else 1


def num_workers(strategy):
    """Returns the number of processes that train together."""
    return len(_processes(strategy))


def rows_of_process(strategy, rows):
    """Returns the rows of a batch that lie on the devices of this process.

    Args:
        strategy: The training's strategy.
        rows: Number of rows of a batch, a multiple of the replicas.

    Returns:
        A slice.
    """
    processes = _processes(strategy)
    size = rows // len(processes)
    start = size * processes.index(jax.process_index())
    return slice(start, start + size)


def _processes(strategy):
    """Returns the indices of the processes of a strategy's devices."""
    if strategy is None:
        return [jax.process_index()]
    devices = strategy.device_mesh.backend_mesh.devices.flat
    return sorted({device.process_index for device in devices})


def scope(strategy):
    """Returns the scope to make and to assign a strategy's variables in."""
    return strategy.scope() if strategy else contextlib.nullcontext()


def check_jit_compile(strategy):
    """Accepts any strategy: JAX compiles the step of several devices."""


def is_chief(strategy):
    """Returns `True` if this process writes the files of its training."""
    return jax.process_index() == _processes(strategy)[0]


def broadcast(strategy, number):
    """Sends the chief's number to all processes of a training.

    It is a barrier: all processes have to call it, and none returns before.

    Args:
        strategy: The training's strategy.
        number: An integer.

    Returns:
        The chief's integer.
    """
    if num_workers(strategy) == 1:
        return number
    return int(
        multihost_utils.broadcast_one_to_all(
            np.int32(number), is_source=is_chief(strategy)
        )
    )

"""Where a training runs on TensorFlow: `tf.distribute`'s strategies."""

import os

import tensorflow as tf

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.training.config import DISTRIBUTIONS


def make_strategy(distribution=None, num_gpus=None, logical_cpus=None):
    """The `tf.distribute` strategy of a training.

    Args:
        distribution: One of `DISTRIBUTIONS`. Defaults to `"mirrored"` where
            there is more than one device, `"multi_worker_mirrored"` where
            there is a TF_CONFIG, and `"none"` elsewhere.
        num_gpus: How many of the GPUs to use. Defaults to all.
        logical_cpus: Number of devices to cut the processor into, to try a
            distribution out without GPUs.

    Returns:
        A strategy.

    Raises:
        UsageError: If there are not as many devices as asked for.
    """
    devices = _devices(num_gpus, logical_cpus)
    if distribution is None:
        if "TF_CONFIG" in os.environ:
            distribution = "multi_worker_mirrored"
        else:
            distribution = "mirrored" if len(devices) > 1 else "none"
    check_names("distribution", [distribution], DISTRIBUTIONS)
    if distribution == "mirrored":
        return tf.distribute.MirroredStrategy(devices)
    if distribution == "multi_worker_mirrored":
        if "TF_CONFIG" not in os.environ:
            raise UsageError(
                "--distribution=multi_worker_mirrored needs the environment "
                "variable TF_CONFIG on every machine: the addresses of all "
                "workers and the index of this one. See docs/training.md."
            )
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf.distribute.get_strategy()


def _devices(num_gpus, logical_cpus):
    gpus = tf.config.list_physical_devices("GPU")
    if num_gpus is not None:
        if not 0 <= num_gpus <= len(gpus):
            raise UsageError(
                f"--num_gpus={num_gpus}, but this machine has {len(gpus)}."
            )
        gpus = gpus[:num_gpus]
        tf.config.set_visible_devices(gpus, "GPU")
    if logical_cpus is not None:
        if gpus or logical_cpus < 1:
            raise UsageError(
                "--logical_cpus must be positive, and is for machines without "
                "GPUs or with --num_gpus=0."
            )
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * logical_cpus
        if tf.config.get_logical_device_configuration(cpu) != parts:
            tf.config.set_logical_device_configuration(cpu, parts)
        return [f"CPU:{index}" for index in range(logical_cpus)]
    return [f"GPU:{index}" for index in range(len(gpus))] or ["CPU:0"]


def default_strategy():
    """The strategy where none is given: that of the scope one is in."""
    return tf.distribute.get_strategy()


def num_replicas(strategy):
    """The number of devices that a batch is distributed over."""
    return strategy.num_replicas_in_sync


def num_workers(strategy):
    """The number of processes that train together."""
    cluster = strategy.cluster_resolver
    if cluster is None or cluster.task_type is None:
        return 1
    spec = cluster.cluster_spec()
    return sum(map(spec.num_tasks, spec.jobs))


def scope(strategy):
    """Where a strategy's model and optimizer are made, and get values."""
    return strategy.scope()


def check_jit_compile(strategy):
    """Raises a `UsageError` if a strategy's step cannot be compiled by XLA."""
    if strategy.num_replicas_in_sync > 1:
        raise UsageError(
            "jit_compile is for one device: the step of "
            f"{strategy.num_replicas_in_sync} replicas cannot be compiled. "
            "Leave it out, or take --distribution=none."
        )


def is_chief(strategy):
    """Whether this process is the one of its training that writes files.

    Args:
        strategy: The training's strategy. What TF_CONFIG says is nothing to a
            strategy of one machine.
    """
    cluster = strategy.cluster_resolver
    if cluster is None or cluster.task_type is None:
        return True
    chief = "chief" if "chief" in cluster.cluster_spec().jobs else "worker"
    return cluster.task_type == chief and cluster.task_id == 0


def broadcast(strategy, number):
    """The chief's number, in all of a training's processes.

    All have to ask, and go on together, when the last of them has.

    Args:
        strategy: The training's strategy.
        number: An integer.

    Returns:
        The integer that the chief gave.
    """
    numbers = strategy.experimental_distribute_values_from_function(
        # The chief's first replica is the first of all.
        lambda context: tf.constant(
            number if context.replica_id_in_sync_group == 0 else 0, tf.int64
        )
    )
    return int(strategy.reduce("SUM", numbers, axis=None))


def start_profile(folder):
    """Starts a profile for TensorBoard."""
    tf.profiler.experimental.start(folder)


def stop_profile():
    """Ends the profile and writes it."""
    tf.profiler.experimental.stop()

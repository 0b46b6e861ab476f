"""The devices of a training on TensorFlow: strategies of `tf.distribute`."""

import os

import tensorflow as tf

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choices
from tpt_keras.training.config import DISTRIBUTIONS


def make_strategy(distribution=None, num_gpus=None, logical_cpus=None):
    """The `tf.distribute` strategy of a training.

    Args:
        distribution: One of `DISTRIBUTIONS`. Defaults to `"mirrored"` where
            there is more than one device, `"multi_worker_mirrored"` with a
            TF_CONFIG, and `"none"` otherwise.
        num_gpus: Number of GPUs to use. Defaults to all.
        logical_cpus: Number of devices to divide the CPU into, to try a
            distribution without GPUs.

    Returns:
        A strategy.

    Raises:
        UsageError: If there are fewer devices.
    """
    devices = _devices(num_gpus, logical_cpus)
    if distribution is None:
        if "TF_CONFIG" in os.environ:
            distribution = "multi_worker_mirrored"
        else:
            distribution = "mirrored" if len(devices) > 1 else "none"
    check_choices("distribution", [distribution], DISTRIBUTIONS)
    if distribution == "mirrored":
        return tf.distribute.MirroredStrategy(devices)
    if distribution == "multi_worker_mirrored":
        if "TF_CONFIG" not in os.environ:
            raise UsageError(
                "The `distribution` multi_worker_mirrored needs the variable "
                "TF_CONFIG on every machine: the addresses of all workers and "
                "the index of this one. See docs/training.md.",
                field="distribution",
            )
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf.distribute.get_strategy()


def _devices(num_gpus, logical_cpus):
    gpus = tf.config.list_physical_devices("GPU")
    if num_gpus is not None:
        if not 0 <= num_gpus <= len(gpus):
            raise UsageError(
                f"This machine has {len(gpus)} GPUs. Received: `num_gpus` "
                f"{num_gpus}.",
                field="num_gpus",
            )
        gpus = gpus[:num_gpus]
        tf.config.set_visible_devices(gpus, "GPU")
    if logical_cpus is not None:
        if gpus or logical_cpus < 1:
            raise UsageError(
                "`logical_cpus` must be positive, and needs a machine without "
                "GPUs, or a `num_gpus` of 0.",
                field="logical_cpus",
            )
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * logical_cpus
        if tf.config.get_logical_device_configuration(cpu) != parts:
            tf.config.set_logical_device_configuration(cpu, parts)
        return [f"CPU:{index}" for index in range(logical_cpus)]
    return [f"GPU:{index}" for index in range(len(gpus))] or ["CPU:0"]


def default_strategy():
    """Returns the strategy of the current scope."""
    return tf.distribute.get_strategy()


def num_replicas(strategy):
    """Returns the number of devices that a batch is distributed over."""
    return strategy.num_replicas_in_sync


def num_workers(strategy):
    """Returns the number of processes that train together."""
    cluster = strategy.cluster_resolver
    if cluster is None or cluster.task_type is None:
        return 1
    spec = cluster.cluster_spec()
    return sum(map(spec.num_tasks, spec.jobs))


def scope(strategy):
    """Returns the scope to make and to assign a strategy's variables in."""
    return strategy.scope()


def check_jit_compile(strategy):
    """Raises a `UsageError` if a strategy's step cannot be compiled by XLA."""
    if strategy.num_replicas_in_sync > 1:
        raise UsageError(
            "`jit_compile` needs one device: XLA cannot compile the step of "
            f"{strategy.num_replicas_in_sync} replicas. Leave it out, or set "
            "`distribution` to none.",
            field="jit_compile",
        )


def is_chief(strategy):
    """Returns `True` if this process writes the files of its training.

    Args:
        strategy: The training's strategy. That of one machine ignores
            TF_CONFIG.
    """
    cluster = strategy.cluster_resolver
    if cluster is None or cluster.task_type is None:
        return True
    chief = "chief" if "chief" in cluster.cluster_spec().jobs else "worker"
    return cluster.task_type == chief and cluster.task_id == 0


def broadcast(strategy, number):
    """Sends the chief's number to all processes of a training.

    It is a barrier: all processes have to call it, and none returns before.

    Args:
        strategy: The training's strategy.
        number: An integer.

    Returns:
        The chief's integer.
    """
    numbers = strategy.experimental_distribute_values_from_function(
        # The first replica of all is the chief's.
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

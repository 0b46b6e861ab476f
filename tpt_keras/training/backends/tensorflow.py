"""The training step on TensorFlow: tapes, graphs and `tf.distribute`."""

import functools
import os

import tensorflow as tf
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.training.backends.backend import Backend
from tpt_keras.training.backends.backend import chosen_gpus
from tpt_keras.training.backends.backend import read_workers
from tpt_keras.training.config import DISTRIBUTIONS
from tpt_keras.training.step import clip_by_global_norm
from tpt_keras.training.step import global_norm
from tpt_keras.training.step import map_batch
from tpt_keras.training.step import sort_by_length
from tpt_keras.training.step import trim
from tpt_keras.training.step import weighted_batch


class TensorFlowBackend(Backend):
    """The step on TensorFlow, with a `tf.distribute` strategy."""

    def __init__(self, strategy=None):
        super().__init__(strategy or tf.distribute.get_strategy())
        self.num_replicas = self.strategy.num_replicas_in_sync
        cluster = self.strategy.cluster_resolver
        # A strategy of one machine ignores TF_CONFIG.
        if cluster and cluster.task_type:
            spec = cluster.cluster_spec()
            self.num_workers = sum(map(spec.num_tasks, spec.jobs))
            chief = "chief" if "chief" in spec.jobs else "worker"
            self.is_chief = (cluster.task_type, cluster.task_id) == (chief, 0)

    def scope(self):
        return self.strategy.scope()

    def broadcast(self, number):
        numbers = self.strategy.experimental_distribute_values_from_function(
            # The first replica of all is the chief's.
            lambda context: tf.constant(
                number if context.replica_id_in_sync_group == 0 else 0, tf.int64
            )
        )
        return int(self.strategy.reduce("SUM", numbers, axis=None))

    def feed(self, trainer, batches, start_step, num_epochs):
        if self.num_replicas == 1:
            return batches.dataset(start_step, num_epochs)

        def of_worker(context):
            num_shards = context.num_replicas_in_sync
            per_worker = num_shards // context.num_input_pipelines
            first = context.input_pipeline_id * per_worker
            shards = range(first, first + per_worker)
            return batches.dataset(start_step, num_epochs, shards, num_shards)

        return self.strategy.distribute_datasets_from_function(of_worker)

    def compile_train_step(self, trainer):
        return _compiled(trainer, functools.partial(train_step, trainer))

    def compile_test_step(self, trainer):
        return _compiled(trainer, trainer.test_step)


def train_step(trainer, data):
    """Trains on a replica's part of a batch; returns the epoch's metrics."""
    replicas = tf.distribute.get_replica_context()
    batch = weighted_batch(data, trainer.pad_id)
    total_weight = replicas.all_reduce("SUM", ops.sum(batch[2]))

    def gradients_and_metrics(batch):
        variables = [v.value for v in trainer.model.trainable_variables]
        with tf.GradientTape() as tape:
            loss, metrics = trainer.loss_and_metrics(
                trainer.model, batch, training=True
            )
            # The share of the mean over all replicas and micro-batches.
            loss = ops.divide_no_nan(loss, total_weight)
        gradients = tape.gradient(loss, variables)
        # The gradient of the embedding comes as slices.
        return [tf.convert_to_tensor(g) for g in gradients], metrics

    gradients, metrics = _sum_of_micro_batches(
        gradients_and_metrics, batch, trainer
    )
    # Summed here and not by the optimizer, which would clip before it sums.
    gradients = replicas.all_reduce("SUM", gradients)
    norm = global_norm(gradients)
    gradients = clip_by_global_norm(gradients, trainer.global_clipnorm, norm)
    if replicas.num_replicas_in_sync > 1:
        # The optimizer sums over the replicas, too.
        share = 1.0 / replicas.num_replicas_in_sync
        gradients = [gradient * share for gradient in gradients]
    trainer.optimizer.apply(gradients, trainer.model.trainable_variables)
    return trainer.track(metrics, norm)


def _sum_of_micro_batches(function, batch, trainer):
    micro_batches = trainer.gradient_accumulation_steps
    if micro_batches == 1:
        return function(batch)

    def split(rows, padding):
        # All micro-batches have one size, the last rows may be padding: XLA
        # pads a slice that ends after the last row to the whole batch.
        count, length = tf.unstack(tf.shape(rows))
        size = -(-count // micro_batches)
        added = [[0, micro_batches * size - count], [0, 0]]
        rows = tf.pad(rows, added, constant_values=padding)
        return tf.reshape(rows, (micro_batches, size, length))

    batch = sort_by_length(batch, trainer.pad_id)
    parts = map_batch(split, batch, trainer.pad_id)

    def add(index, sums):
        part = tf.nest.map_structure(lambda rows: rows[index], parts)
        if not trainer.jit_compile:
            part = trim(part, trainer.pad_id)
        return index + 1, tf.nest.map_structure(tf.add, sums, function(part))

    zeros = [
        tf.zeros(variable.shape, variable.dtype)
        for variable in trainer.model.trainable_variables
    ]
    _, sums = tf.while_loop(
        lambda index, sums: index < micro_batches,
        add,
        (tf.constant(0), (zeros, trainer.no_metrics())),
        # One at a time, or no memory would be saved.
        parallel_iterations=1,
    )
    return sums


def _compiled(trainer, step):
    """Returns a function of an iterator over batches that makes a step."""
    strategy = trainer.backend.strategy
    # XLA compiles for one device and knows no collective operations.
    jit_compile = trainer.jit_compile and strategy.num_replicas_in_sync == 1

    def graph(function, jit_compile=None):
        if trainer.run_eagerly:
            return function
        return tf.function(
            function,
            reduce_retracing=True,
            autograph=False,
            jit_compile=jit_compile,
        )

    def on_replicas(batch):
        # Keras passes a missing sample weight as an empty optional.
        batch = tf.nest.map_structure(
            lambda x: None if isinstance(x, tf.experimental.Optional) else x,
            batch,
        )
        results = strategy.run(step, args=(batch,))
        return {
            name: strategy.reduce("MEAN", result, axis=None)
            for name, result in results.items()
        }

    on_batch = graph(on_replicas, jit_compile or None)
    on_dataset = graph(lambda iterator: on_batch(next(iterator)))

    def function(iterator):
        if isinstance(
            iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)
        ):
            return on_dataset(iterator)
        return on_batch(next(iterator))

    return function


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
        distribution = "mirrored" if len(devices) > 1 else "none"
        if "TF_CONFIG" in os.environ:
            distribution = "multi_worker_mirrored"
    check_choice("distribution", distribution, DISTRIBUTIONS)
    if distribution == "mirrored":
        return tf.distribute.MirroredStrategy(devices)
    if distribution == "none":
        return tf.distribute.get_strategy()
    # TensorFlow trains alone without a TF_CONFIG, and does not name one that is
    # damaged.
    read_workers()
    return tf.distribute.MultiWorkerMirroredStrategy()


def _devices(num_gpus, logical_cpus):
    gpus = tf.config.list_physical_devices("GPU")
    if num_gpus is not None:
        gpus = chosen_gpus(gpus, num_gpus)
        tf.config.set_visible_devices(gpus, "GPU")
    if logical_cpus is None:
        return [f"GPU:{index}" for index in range(len(gpus))] or ["CPU:0"]
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

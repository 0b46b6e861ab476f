"""The training step on TensorFlow: tapes, graphs and `tf.distribute`."""

import tensorflow as tf
from keras import ops

from tpt_keras.training.backends.tensorflow_devices import num_replicas
from tpt_keras.training.step import clip_by_global_norm
from tpt_keras.training.step import global_norm
from tpt_keras.training.step import map_batch
from tpt_keras.training.step import weighted_batch


def train_step(trainer, data):
    """Makes a training step with a replica's part of a batch.

    Args:
        trainer: A `Trainer`.
        data: Inputs, targets and optionally sample weights.

    Returns:
        Dict of the epoch's metrics so far.
    """
    optimizer = trainer.optimizer
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
            loss = optimizer.scale_loss(ops.divide_no_nan(loss, total_weight))
        gradients = tape.gradient(loss, variables)
        # The gradient of the embedding comes as slices.
        return [tf.convert_to_tensor(g) for g in gradients], metrics

    gradients, metrics = _sum_of_micro_batches(
        gradients_and_metrics, batch, trainer
    )
    # Summed here and not by the optimizer, which would clip before it sums.
    gradients = replicas.all_reduce("SUM", gradients)
    loss_scale = optimizer.scale_loss(1.0)
    norm = global_norm(gradients)
    if trainer.global_clipnorm is not None:
        gradients = clip_by_global_norm(
            gradients, trainer.global_clipnorm * loss_scale, norm
        )
    # The optimizer sums over the replicas, too.
    share = 1.0 / replicas.num_replicas_in_sync
    optimizer.apply(
        [gradient * share for gradient in gradients],
        trainer.model.trainable_variables,
    )
    return trainer.track(metrics, norm / loss_scale)


def test_step(trainer, data):
    """Evaluates a replica's part of a batch; see `train_step`."""
    batch = weighted_batch(data, trainer.pad_id)
    _, metrics = trainer.loss_and_metrics(trainer.model, batch)
    return trainer.track(metrics)


def _sum_of_micro_batches(function, batch, trainer):
    """Adds up a function's results for the micro-batches of a batch."""
    micro_batches = trainer.gradient_accumulation_steps
    if micro_batches == 1:
        return function(batch)

    def split(rows, padding):
        # All micro-batches have one size, the last rows may be padding: XLA
        # pads a slice that ends behind the last row to the whole batch.
        count, length = tf.unstack(tf.shape(rows))
        size = -(-count // micro_batches)
        added = [[0, micro_batches * size - count], [0, 0]]
        rows = tf.pad(rows, added, constant_values=padding)
        return tf.reshape(rows, (micro_batches, size, length))

    parts = map_batch(split, batch, trainer.pad_id)

    def add(index, sums):
        part = tf.nest.map_structure(lambda rows: rows[index], parts)
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


def compile_train_step(trainer):
    """Compiles the training step for `fit`.

    Args:
        trainer: A compiled `Trainer`.

    Returns:
        Function of an iterator over batches, which makes as many steps as one
        execution has.
    """
    step = _on_replicas(trainer, train_step)

    def steps(iterator):
        def body(index):
            step(next(iterator))
            return index + 1

        # Even without iterations, the loop doubles the size of the graph.
        if trainer.steps_per_execution > 1:
            tf.while_loop(
                lambda index: index < trainer.steps_per_execution - 1,
                body,
                [tf.constant(0)],
                parallel_iterations=1,
            )
        return step(next(iterator))

    return _or_of_one_batch(_graph(trainer, steps), step)


def compile_test_step(trainer):
    """Compiles the evaluation step for `evaluate`; see `compile_train_step`."""
    step = _on_replicas(trainer, test_step)
    next_step = _graph(trainer, lambda iterator: step(next(iterator)))

    def steps(iterator):
        # The data may end before an execution does.
        results = None
        for _ in range(trainer.steps_per_execution):
            try:
                results = next_step(iterator)
            except tf.errors.OutOfRangeError:
                if results is None:
                    raise
                break
        return results

    return _or_of_one_batch(steps, step)


def _on_replicas(trainer, step):
    """Returns a function of all replicas' parts of a batch."""
    strategy = trainer.strategy

    def on_replicas(batch):
        # Keras passes a missing sample weight as an empty optional.
        batch = tf.nest.map_structure(
            lambda x: None if isinstance(x, tf.experimental.Optional) else x,
            batch,
        )
        results = strategy.run(step, args=(trainer, batch))
        return {
            name: strategy.reduce("MEAN", result, axis=None)
            for name, result in results.items()
        }

    # XLA compiles for one device and knows no collective operations.
    is_alone = num_replicas(strategy) == 1
    return _graph(trainer, on_replicas, is_alone and trainer.jit_compile)


def _graph(trainer, function, jit_compile=None):
    if trainer.run_eagerly:
        return function
    return tf.function(
        function,
        reduce_retracing=True,
        autograph=False,
        jit_compile=jit_compile or None,
    )


def _or_of_one_batch(steps, step):
    """Returns `steps` of a dataset, or `step` of `train_on_batch`'s batch."""

    def function(iterator):
        if isinstance(
            iterator, (tf.data.Iterator, tf.distribute.DistributedIterator)
        ):
            return steps(iterator)
        return step(next(iterator))

    return function


class Placement:
    """Places batches on the replicas of a trainer.

    Args:
        trainer: A `Trainer`.
    """

    # The logs at the end of a batch are those of this batch.
    steps_behind = 0

    def __init__(self, trainer):
        self._strategy = trainer.strategy

    def reset(self):
        """Starts an epoch."""

    def feed(self, batches, start_step=0, num_epochs=None):
        """See `Trainer.feed`."""
        strategy = self._strategy
        if num_replicas(strategy) == 1:
            return batches.dataset(start_step, num_epochs)

        def of_worker(context):
            num_shards = context.num_replicas_in_sync
            per_worker = num_shards // context.num_input_pipelines
            first = context.input_pipeline_id * per_worker
            shards = range(first, first + per_worker)
            return batches.dataset(start_step, num_epochs, shards, num_shards)

        return strategy.distribute_datasets_from_function(of_worker)

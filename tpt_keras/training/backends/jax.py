"""The training step on JAX: pure functions of the state, compiled by XLA.

Replicas need no code here. XLA computes the whole batch on all devices that
its rows lie on, and adds up their gradients.
"""

import functools

import jax
import keras
from jax import numpy as jnp
from keras import ops

from tpt_keras.data_generators.batches import Buckets
from tpt_keras.data_generators.batches import prefetch
from tpt_keras.training.backends.jax_compilation import CompiledStep
from tpt_keras.training.backends.jax_compilation import keep_programs
from tpt_keras.training.backends.jax_devices import num_replicas
from tpt_keras.training.backends.jax_devices import rows_of_process
from tpt_keras.training.step import clip_by_global_norm
from tpt_keras.training.step import global_norm
from tpt_keras.training.step import map_batch
from tpt_keras.training.step import weighted_batch

# Prefetched batches: a GPU makes about as many steps while the next window of
# a `ProblemBatches` is read.
PREFETCHED = 64


def train_step(trainer, apply, state, data):
    """Makes a training step.

    Args:
        trainer: A `Trainer`.
        apply: The optimizer's `stateless_apply`.
        state: Values of the trainable, the other, the optimizer's and the
            metrics' variables.
        data: Inputs, targets and optionally sample weights.

    Returns:
        Dict of the epoch's metrics so far, and the state after the step.
    """
    weights, others, optimizer_state, tracked = state
    optimizer = trainer.optimizer
    batch = weighted_batch(data, trainer.pad_id)
    total_weight = ops.sum(batch[2])

    def loss_and_updates(weights, others, batch):
        variables = _with(
            (trainer.trainable_variables, weights),
            (trainer.non_trainable_variables, others),
            (optimizer.variables, optimizer_state),
        )
        with variables:
            loss, metrics = trainer.loss_and_metrics(
                trainer.model, batch, training=True
            )
            # The share of the mean over all micro-batches.
            loss = optimizer.scale_loss(ops.divide_no_nan(loss, total_weight))
        others = _values(variables, trainer.non_trainable_variables)
        return loss, (others, metrics)

    gradients, others, metrics = _sum_of_micro_batches(
        jax.grad(loss_and_updates, has_aux=True),
        (weights, others),
        batch,
        trainer,
    )
    with _with((optimizer.variables, optimizer_state)):
        loss_scale = optimizer.scale_loss(1.0)
    norm = global_norm(gradients)
    if trainer.global_clipnorm is not None:
        gradients = clip_by_global_norm(
            gradients, trainer.global_clipnorm * loss_scale, norm
        )
    weights, optimizer_state = apply(optimizer_state, gradients, weights)
    logs, tracked = _track(trainer, tracked, metrics, norm / loss_scale)
    return logs, (weights, others, optimizer_state, tracked)


def test_step(trainer, state, data):
    """Evaluates a batch; see `train_step`."""
    weights, others, tracked = state
    batch = weighted_batch(data, trainer.pad_id)
    variables = _with(
        (trainer.trainable_variables, weights),
        (trainer.non_trainable_variables, others),
    )
    with variables:
        _, metrics = trainer.loss_and_metrics(trainer.model, batch)
    others = _values(variables, trainer.non_trainable_variables)
    logs, tracked = _track(trainer, tracked, metrics)
    return logs, (weights, others, tracked)


def _sum_of_micro_batches(gradient, variables, batch, trainer):
    """Adds up the gradients and the metrics of a batch's micro-batches."""
    weights, others = variables
    micro_batches = trainer.gradient_accumulation_steps
    if micro_batches == 1:
        gradients, (others, metrics) = gradient(weights, others, batch)
        return gradients, others, metrics

    def split(rows, padding):
        # All micro-batches have one size, some a row of padding. Each takes
        # rows from all over the batch, and so from every device.
        count, length = rows.shape
        added = (0, -count % micro_batches), (0, 0)
        rows = jnp.pad(rows, added, constant_values=padding)
        return rows.reshape(-1, micro_batches, length).swapaxes(0, 1)

    def add(carry, part):
        sums, others = carry
        gradients, (others, metrics) = gradient(weights, others, part)
        return ([s + g for s, g in zip(sums, gradients)], others), metrics

    zeros = [jnp.zeros_like(weight) for weight in weights]
    (gradients, others), metrics = jax.lax.scan(
        add, (zeros, others), map_batch(split, batch, trainer.pad_id)
    )
    return gradients, others, jax.tree.map(lambda m: m.sum(axis=0), metrics)


def _track(trainer, tracked, *metrics):
    """Calls `Trainer.track` with the metrics' variables as values."""
    variables = _with((trainer.metrics_variables, tracked))
    with variables:
        logs = trainer.track(*metrics)
    return logs, _values(variables, trainer.metrics_variables)


def _with(*pairs):
    """Returns a scope in which lists of variables have other values."""
    mapping = [pair for variables in pairs for pair in zip(*variables)]
    return keras.StatelessScope(state_mapping=mapping)


def _values(stateless_scope, variables):
    """Returns the variables' values at the end of a scope of `_with`."""
    return [stateless_scope.get_current_value(v) for v in variables]


def compile_train_step(trainer):
    """Compiles the training step for `fit`.

    The logs that it returns are those of the execution before, so that the
    device has the next step when the callbacks read the logs of the last one.

    Args:
        trainer: A compiled `Trainer`.

    Returns:
        Function of the state and of an iterator over batches, which makes as
        many steps as one execution has.
    """
    # Traced once, and not once for each shape of a batch.
    apply = jax.jit(trainer.optimizer.stateless_apply)
    step = _executions(trainer, functools.partial(train_step, trainer, apply))

    def step_with_logs_before(state, iterator):
        logs, state = step(state, iterator)
        return trainer.placement.logs_before(logs), state

    return step_with_logs_before


def compile_test_step(trainer):
    """Compiles the evaluation step for `evaluate`; see `compile_train_step`."""
    return _executions(trainer, functools.partial(test_step, trainer))


def _executions(trainer, step):
    if not trainer.run_eagerly:
        step = CompiledStep(
            step, trainer.strategy, lambda: trainer.placement.expected
        )

    def steps(state, iterator):
        logs, state = step(state, next(iterator))
        # The data may end before an execution does.
        for _, batch in zip(range(trainer.steps_per_execution - 1), iterator):
            logs, state = step(state, batch)
        return logs, state

    return steps


class Placement:
    """Places batches on the devices of a trainer, padded to few shapes.

    Args:
        trainer: A `Trainer`.
    """

    def __init__(self, trainer):
        self._trainer = trainer
        self._strategy = trainer.strategy
        self._buckets = None
        self._logs = None
        self.expected = []  # batches without values, to compile for
        keep_programs()

    @property
    def steps_behind(self):
        """Steps between the logs at the end of a batch and the batch."""
        return self._trainer.steps_per_execution

    def reset(self):
        """Starts an epoch."""
        self._logs = None

    def logs_before(self, logs):
        """Keeps logs; returns those before, if there are any."""
        before, self._logs = self._logs or logs, logs
        return before

    def feed(self, batches, start_step=0, num_epochs=None):
        """See `Trainer.feed`."""
        # The last batch of an epoch is padded, too, and every device gets the
        # same number of rows.
        rows = batches.batch_size
        rows += -rows % num_replicas(self._strategy)
        placed = batches.iterate(start_step, num_epochs)
        if hasattr(batches, "length_pairs"):
            buckets = self._choose_buckets(batches, num_epochs)
            pairs = buckets.expected_pairs(batches)
            self.expected = [self._abstract(rows, *pair) for pair in pairs]
            placed = (buckets.pad(batch, rows) for batch in placed)
        part = rows_of_process(self._strategy, rows)
        placed = (jax.tree.map(lambda ids: ids[part], b) for b in placed)
        return prefetch(placed, PREFETCHED)

    def _choose_buckets(self, batches, num_epochs):
        """Chooses the buckets of a training, which its evaluations share."""
        model = self._trainer.model
        if num_epochs is None:
            self._buckets = Buckets(model, batches)
        return self._buckets or Buckets(model)

    def _abstract(self, rows, source_length, target_length):
        """Returns a batch without values."""

        def abstract(length):
            sharding, shape = None, (rows, length)
            if self._strategy is not None:
                layout = self._strategy.get_data_layout(shape)
                sharding = layout.backend_layout
            return jax.ShapeDtypeStruct(shape, "int32", sharding=sharding)

        source, target = map(abstract, (source_length, target_length))
        inputs = {"encoder_token_ids": source, "decoder_token_ids": target}
        return inputs, target

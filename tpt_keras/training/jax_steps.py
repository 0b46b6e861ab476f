import functools
import types

import jax
import keras
from jax import numpy as jnp
from keras import ops

from tpt_keras.data_generators.batches import prefetch
from tpt_keras.training.distribution import default_strategy
from tpt_keras.training.distribution import num_replicas
from tpt_keras.training.distribution import scope
from tpt_keras.training.global_norm import clip_by_global_norm
from tpt_keras.training.global_norm import global_norm
from tpt_keras.training.jax_distribution import part_of_process
from tpt_keras.training.jax_program_cache import keep_programs
from tpt_keras.training.jax_programs import JaxPrograms
from tpt_keras.training.token_weights import token_weights

# Batches that are made ahead: for as long as reading the next window of a
# `ProblemBatches` takes, while a GPU makes a step in 45 ms.
BATCHES_AHEAD = 64


class JaxSteps:
    """The steps of a `TransformerTrainer` on JAX, as its mixin.

    What only JAX needs: functions without side effects, micro-batches in a
    `scan`, `keras.distribution`, batches that are made ahead, and few shapes,
    for it compiles each anew.

    The device has the next step already when the last one's loss is looked at:
    at the end of a batch, callbacks get the metrics of the batch before.

    Replicas need nothing here: what is written for the whole batch XLA
    computes on all devices that its rows lie on.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # As on TensorFlow: that of the scope that it is made in.
        self.distribute_strategy = default_strategy()
        # What Keras would follow if it were attributes of this.
        self._last = types.SimpleNamespace(logs=None)
        self._batches_to_come = tuple
        keep_programs()

    @property
    def steps_behind(self):
        """Steps that the metrics at a batch's end are behind it."""
        return self.steps_per_execution

    def compile(self, *args, jit_compile=True, **kwargs):
        """Always compiles: without, JAX would make a step op by op.

        Args:
            *args: See `keras.Model.compile`.
            jit_compile: Has no effect; `run_eagerly` has.
            **kwargs: See `keras.Model.compile`.
        """
        super().compile(*args, jit_compile=True, **kwargs)
        # Traced once, and not once for every shape of a batch.
        self._apply = jax.jit(self.optimizer.stateless_apply)

    def fit(self, *args, **kwargs):
        with scope(self.distribute_strategy):
            return super().fit(*args, **kwargs)

    def evaluate(self, *args, **kwargs):
        with scope(self.distribute_strategy):
            return super().evaluate(*args, **kwargs)

    def feed(self, batches, start_step=0, num_epochs=None):
        """What `fit` and `evaluate` take: batches of few shapes.

        Args:
            batches: A `NumberedBatches`.
            start_step: Number of the first batch.
            num_epochs: How many epochs. Defaults to no end, as a training has
                it: then the shapes are chosen for these batches.

        Returns:
            A generator.
        """
        # The last of an epoch, too, and every device the same number. Of
        # those Keras takes from each process what lies on its devices.
        rows = batches.batch_size
        rows += -rows % num_replicas(self.distribute_strategy)
        if num_epochs is None:
            self._choose_shapes(batches)
        self._batches_to_come = functools.partial(
            self._of_known_shapes,
            rows,
            self._abstract,
            batches if num_epochs else None,
        )
        part = part_of_process(self.distribute_strategy, rows)
        of_few_shapes = (
            jax.tree.map(
                lambda ids: ids[part], self._in_few_shapes(batch, rows)
            )
            for batch in batches.iterate(start_step, num_epochs)
        )
        return prefetch(of_few_shapes, BATCHES_AHEAD)

    def _abstract(self, shape):
        """An array of token ids as JAX gets it, but without values."""
        strategy, sharding = self.distribute_strategy, None
        if strategy is not None:
            sharding = strategy.get_data_layout(shape).backend_layout
        return jax.ShapeDtypeStruct(shape, "int32", sharding=sharding)

    def make_train_function(self, force=False):
        if self.train_function is not None and not force:
            return
        super().make_train_function(force)
        step = self.train_function

        def step_with_logs_behind(state, iterator):
            logs, state = step(state, iterator)
            last_logs, self._last.logs = self._last.logs or logs, logs
            return last_logs, state

        self.train_function = step_with_logs_behind

    def reset_metrics(self):
        super().reset_metrics()
        self._last.logs = None

    def _make_function(self, step_function, *args, **kwargs):
        if not self.run_eagerly:
            # Of those that are fed when it is called.
            step_function = JaxPrograms(
                step_function, lambda: self._batches_to_come()
            )
        return super()._make_function(step_function, *args, **kwargs)

    def train_step(self, state, data):
        weights, others, optimizer_variables, metrics = state
        inputs, targets, sample_weight = keras.utils.unpack_x_y_sample_weight(
            data
        )
        counts = token_weights(targets, self._pad_id, sample_weight)
        gradients, others, metrics = self._accumulated_gradients(
            (weights, optimizer_variables),
            (others, metrics),
            (inputs, targets, counts),
        )
        with _values(self.optimizer.variables, optimizer_variables):
            loss_scale = self.optimizer.scale_loss(1.0)
        norm = global_norm(gradients)
        if self.global_clipnorm is not None:
            gradients = clip_by_global_norm(
                gradients, self.global_clipnorm * loss_scale, norm
            )
        weights, optimizer_variables = self._apply(
            optimizer_variables, gradients, weights
        )
        with _values(self.metrics_variables, metrics) as values:
            self._watch(inputs, targets, norm / loss_scale)
            logs = self.get_metrics_result()
        metrics = _new_values(self.metrics_variables, values)
        return logs, (weights, others, optimizer_variables, metrics)

    def _accumulated_gradients(self, variables, state, batch):
        """The gradient of the batch's mean loss, and the state after it."""
        total_weight = ops.sum(batch[2])
        if self.gradient_accumulation_steps == 1:
            return self._gradients(variables, state, batch, total_weight)
        inputs, targets, counts = batch
        parts = (
            {
                name: self._cut(ids, self._pad_id)
                for name, ids in inputs.items()
            },
            self._cut(targets, self._pad_id),
            self._cut(counts, 0.0),
        )

        def add_micro_batch(carry, batch):
            sums, *state = carry
            gradients, *state = self._gradients(
                variables, state, batch, total_weight
            )
            sums = [s + g for s, g in zip(sums, gradients)]
            return (sums, *state), None

        zeros = [jnp.zeros_like(weight) for weight in variables[0]]
        return jax.lax.scan(add_micro_batch, (zeros, *state), parts)[0]

    def _cut(self, rows, padding):
        """Rows `(batch, length)` as `(micro_batches, rows, length)`.

        All micro-batches are of a size, some with a row of padding. Each takes
        its rows from all over the batch, and so from every device.
        """
        count, length = rows.shape
        micro_batches = self.gradient_accumulation_steps
        added = (0, -count % micro_batches), (0, 0)
        rows = jnp.pad(rows, added, constant_values=padding)
        return rows.reshape(-1, micro_batches, length).swapaxes(0, 1)

    def _gradients(self, variables, state, batch, total_weight):
        weights, optimizer_variables = variables
        others, metrics = state
        inputs, targets, counts = batch

        def share_of_loss(weights):
            loss, (_, logits, others_after, metrics_after) = (
                self.compute_loss_and_updates(
                    weights,
                    others,
                    metrics,
                    inputs,
                    targets,
                    counts,
                    training=True,
                    optimizer_variables=optimizer_variables,
                )
            )
            # Its share of the mean over all micro-batches.
            share = ops.divide_no_nan(ops.sum(counts), total_weight)
            return loss * share, (logits, others_after, metrics_after)

        gradients, (logits, others, metrics) = jax.grad(
            share_of_loss, has_aux=True
        )(weights)
        with _values(self.metrics_variables, metrics) as values:
            self.compute_metrics(inputs, targets, logits, counts)
        metrics = _new_values(self.metrics_variables, values)
        return gradients, others, metrics


def _values(variables, values):
    """A scope in which variables have other values."""
    return keras.StatelessScope(state_mapping=list(zip(variables, values)))


def _new_values(variables, values):
    """What variables have become in a scope of `_values`."""
    return [values.get_current_value(variable) for variable in variables]

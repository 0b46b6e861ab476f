"""The training step on JAX: pure functions of the state, compiled by XLA.

Replicas need no code in the step. XLA computes the whole batch on all devices
that its rows lie on, and adds up their gradients.
"""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import logging
import os

import jax
import keras
import numpy as np
from jax import numpy as jnp
from jax.experimental import multihost_utils
from keras import ops

from tpt_keras.data_generators.batches import prefetch
from tpt_keras.data_generators.buckets import Buckets
from tpt_keras.data_generators.buckets import choose_length_pairs
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.training.backends.backend import Backend
from tpt_keras.training.backends.backend import chosen_gpus
from tpt_keras.training.backends.backend import read_workers
from tpt_keras.training.config import DISTRIBUTIONS
from tpt_keras.training.step import clip_by_global_norm
from tpt_keras.training.step import global_norm
from tpt_keras.training.step import map_batch
from tpt_keras.training.step import weighted_batch

# Prefetched batches: a GPU makes about as many steps while the next window of
# a `ProblemBatches` is read.
PREFETCHED = 64
# Steps that an accelerator has before callbacks read the logs of the first one.
# They wait for it: with one step, the device waits for them in turn.
QUEUED_STEPS = 8
# Its pairs of lengths. More of them take less work, and longer to compile.
ACCELERATOR_PAIRS = 12

_log = logging.getLogger(__name__)


class JaxBackend(Backend):
    """The step on JAX, with a `keras.distribution.DataParallel` or `None`."""

    def __init__(self, strategy=None):
        super().__init__(strategy or keras.distribution.distribution())
        # The lengths that a training's batches are padded to.
        self._buckets = None
        self._is_accelerated = jax.default_backend() != "cpu"
        queued = QUEUED_STEPS if self._is_accelerated else 1
        self._logs = collections.deque(maxlen=queued + 1)
        self._worker = 0  # index of this process among those that train
        if self.strategy:
            devices = self.strategy.device_mesh.backend_mesh.devices.flat
            processes = sorted({device.process_index for device in devices})
            self.num_replicas = self.strategy.num_model_replicas
            self.num_workers = len(processes)
            self._worker = processes.index(jax.process_index())
            self.is_chief = self._worker == 0

    def scope(self):
        return self.strategy.scope() if self.strategy else super().scope()

    def broadcast(self, number):
        if self.num_workers == 1:
            return number
        return int(
            multihost_utils.broadcast_one_to_all(
                np.int32(number), is_source=self.is_chief
            )
        )

    def feed(self, trainer, batches, start_step, num_epochs):
        """Generates this process's rows of batches, padded to few shapes."""
        # The last batch of an epoch is padded, too, and every device gets the
        # same number of rows.
        rows = batches.batch_size
        rows += -rows % self.num_replicas
        size = rows // self.num_workers
        part = slice(self._worker * size, (self._worker + 1) * size)
        placed = batches.iterate(start_step, num_epochs)
        if hasattr(batches, "length_pairs"):
            if num_epochs is None:
                pairs = batches.length_pairs
                if self._is_accelerated:
                    placed, pairs = _of_first_batches(placed, pairs)
                self._buckets = Buckets(trainer.model, pairs)
                self._rows = rows
            buckets = self._buckets or Buckets(trainer.model)
            placed = (buckets.pad(batch, rows) for batch in placed)
        placed = (jax.tree.map(lambda ids: ids[part], b) for b in placed)
        if self.strategy is None:
            placed = map(jax.device_put, placed)  # in the thread, too
        return prefetch(placed, PREFETCHED)

    def compile_train_step(self, trainer):
        """Compiles the gradients for each shape of a batch, the update once.

        The step returns the logs of an earlier step, so that the device has the
        next steps while callbacks read them.
        """
        compute, update = CompiledStep(trainer, gradient_step), None
        if self._is_accelerated and self._buckets and not trainer.run_eagerly:
            compute.compile_ahead(self._rows, self._buckets.pairs)

        def function(state, iterator):
            nonlocal update
            weights, others, optimizer_state, tracked = state
            (logs, gradients), (others, tracked) = compute(
                weights, (others, tracked), next(iterator)
            )
            if update is None:
                update = self._compiled_update(
                    trainer, (weights, optimizer_state)
                )
            weights, optimizer_state = update(
                optimizer_state, gradients, weights
            )
            self._logs.append(logs)
            return self._logs[0], (weights, others, optimizer_state, tracked)

        return function

    def _compiled_update(self, trainer, state):
        update = trainer.optimizer.stateless_apply
        if trainer.run_eagerly:
            return update
        return jax.jit(
            update,
            donate_argnums=(0, 2),
            out_shardings=_shardings(self.strategy, state),
        )

    def compile_test_step(self, trainer):
        evaluate = CompiledStep(trainer, test_step)

        def function(state, iterator):
            weights, *state = state
            logs, state = evaluate(weights, tuple(state), next(iterator))
            return logs, (weights, *state)

        return function

    def begin_epoch(self):
        self._logs.clear()


def _of_first_batches(batches, pairs):
    """Returns all batches, and more pairs of lengths, which fit them closely.

    The last of `pairs` fits those that are longer than the first batches.
    """
    first = list(itertools.islice(batches, PREFETCHED))
    sizes = [[x["encoder_token_ids"].shape[1], y.shape[1]] for x, y in first]
    chosen = choose_length_pairs(np.array(sizes), ACCELERATOR_PAIRS - 1, (0, 0))
    # An iterator, because `chain` would keep the list.
    batches = itertools.chain(iter(first), batches)
    return batches, np.append(chosen, pairs[-1:], axis=0)


def gradient_step(trainer, weights, state, data):
    """Returns the epoch's metrics and a batch's gradients, and the next state.

    The state is the values of the other variables and of the metrics'.
    """
    others, tracked = state
    batch = weighted_batch(data, trainer.pad_id)
    total_weight = ops.sum(batch[2])

    def loss_and_updates(weights, others, batch):
        (loss, metrics), others = _with_values(
            lambda: trainer.loss_and_metrics(trainer.model, batch, True),
            (trainer.trainable_variables, weights),
            (trainer.non_trainable_variables, others),
        )
        # The share of the mean over all micro-batches.
        return ops.divide_no_nan(loss, total_weight), (others, metrics)

    gradient = jax.grad(loss_and_updates, has_aux=True)
    gradients, others, metrics = _sum_of_micro_batches(
        gradient, weights, others, batch, trainer
    )
    norm = global_norm(gradients)
    gradients = clip_by_global_norm(gradients, trainer.global_clipnorm, norm)
    logs, tracked = _track(trainer, tracked, metrics, norm)
    return (logs, gradients), (others, tracked)


def test_step(trainer, weights, state, data):
    """Evaluates a batch; see `gradient_step`."""
    others, tracked = state
    batch = weighted_batch(data, trainer.pad_id)
    (_, metrics), others = _with_values(
        lambda: trainer.loss_and_metrics(trainer.model, batch),
        (trainer.trainable_variables, weights),
        (trainer.non_trainable_variables, others),
    )
    logs, tracked = _track(trainer, tracked, metrics)
    return logs, (others, tracked)


def _sum_of_micro_batches(gradient, weights, others, batch, trainer):
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
    return _with_values(
        lambda: trainer.track(*metrics), (trainer.metrics_variables, tracked)
    )


def _with_values(function, *pairs):
    """Calls a function with values of variables, in pairs of their lists.

    Returns its result, and the values that the last variables have then.
    """
    mapping = [pair for variables in pairs for pair in zip(*variables)]
    with keras.StatelessScope(state_mapping=mapping) as scope:
        result = function()
    return result, [scope.get_current_value(v) for v in pairs[-1][0]]


class CompiledStep:
    """A function of weights, a state and a batch, compiled for each shape.

    XLA takes long for a new shape of a batch, which is logged.
    """

    def __init__(self, trainer, step):
        self._trainer = trainer
        self._function = functools.partial(step, trainer)
        self._jitted = None
        self._of_shape = {}

    def __call__(self, weights, state, batch):
        if self._trainer.run_eagerly:
            return self._function(weights, state, batch)
        shapes = _shapes(batch)
        if shapes not in self._of_shape:
            self._of_shape[shapes] = self._jit(state, shapes)
        return self._of_shape[shapes](weights, state, batch)

    def compile_ahead(self, rows, pairs):
        """Compiles training steps for pairs of lengths, all at once."""
        trainer, strategy = self._trainer, self._trainer.backend.strategy
        weights = [v.value for v in trainer.trainable_variables]
        others = [v.value for v in trainer.non_trainable_variables]
        state = others, [v.value for v in trainer.metrics_variables]
        lowered = {}
        for pair in pairs:
            batch = _described_batch(strategy, rows, *pair)
            shapes = _shapes(batch)
            lowered[shapes] = self._jit(state, shapes).lower(
                weights, state, batch
            )
        with concurrent.futures.ThreadPoolExecutor(len(lowered)) as threads:
            compiled = threads.map(lambda x: x.compile(), lowered.values())
            self._of_shape.update(zip(lowered, compiled))

    def _jit(self, state, shapes):
        if self._jitted is None:
            shardings = _shardings(self._trainer.backend.strategy, state)
            self._jitted = jax.jit(
                self._function,
                donate_argnums=1,
                out_shardings=shardings and (None, shardings),
            )
        _log.info("Compiling a step for batches of %s.", _text(shapes))
        return self._jitted


def _described_batch(strategy, rows, source, target):
    """Returns the shapes of a batch, with its sharding."""

    def ids(length):
        shape = (rows, length)
        layout = strategy and strategy.get_data_layout(shape)
        sharding = layout and layout.backend_layout
        return jax.ShapeDtypeStruct(shape, "int32", sharding=sharding)

    lengths = {"encoder_token_ids": source, "decoder_token_ids": target}
    return jax.tree.map(ids, (lengths, target))


def _shapes(batch):
    return tuple(array.shape for array in jax.tree.leaves(batch))


def _shardings(strategy, state):
    if strategy is None:
        return None
    return jax.tree.map(lambda value: value.sharding, state)


def _text(shapes):
    """Formats a batch's rows and lengths: 64 x 40 + 8."""
    lengths = {length for shape in shapes for length in shape[1:]}
    longest_first = map(str, sorted(lengths, reverse=True))
    return f"{shapes[0][0]} x {' + '.join(longest_first)}"


def make_strategy(distribution=None, num_gpus=None, logical_cpus=None):
    """Makes a `keras.distribution.DataParallel`, or `None` for one device.

    The arguments are those on TensorFlow.
    """
    if distribution is None and "TF_CONFIG" in os.environ:
        distribution = "multi_worker_mirrored"
    check_choice("distribution", distribution or "none", DISTRIBUTIONS)
    if logical_cpus is not None and logical_cpus >= 1:
        # JAX refuses if it has its devices already. They may be enough.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", logical_cpus)
    if distribution == "multi_worker_mirrored":
        _init_distributed()
    devices = _devices(num_gpus, logical_cpus)
    if distribution is None:
        distribution = "mirrored" if len(devices) > 1 else "none"
    if distribution == "none":
        # Not always the first one that JAX sees.
        jax.config.update("jax_default_device", devices[0])
        return None
    if distribution == "multi_worker_mirrored":
        is_cpu = devices[0].platform == "cpu"
        devices = _all_devices(
            devices[0].platform, (logical_cpus or 1) if is_cpu else num_gpus
        )
    return keras.distribution.DataParallel(
        devices=[f"{device.platform}:{device.id}" for device in devices],
        # `feed` gives every process its part.
        auto_shard_dataset=False,
    )


def _init_distributed():
    if jax.distributed.is_initialized():
        return
    workers, number = read_workers()
    # It would catch SIGTERM, which has to end a command.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        workers[0],
        len(workers),
        number,
        # Slurm's variables would hide all devices but one.
        cluster_detection_method="deactivate",
    )
    # They connect at their first computation, and wait for 30 seconds. This is
    # early enough: later, one may still be reading its data.
    multihost_utils.sync_global_devices("all are there")


def _devices(num_gpus, logical_cpus):
    gpus = [d for d in jax.local_devices() if d.platform != "cpu"]
    gpus = chosen_gpus(gpus, num_gpus)
    if logical_cpus is None:
        return gpus or jax.local_devices(backend="cpu")[:1]
    cpus = jax.local_devices(backend="cpu")
    if gpus or not 1 <= logical_cpus <= len(cpus):
        raise UsageError(
            "`logical_cpus` must be positive, set before JAX starts, and "
            "needs a machine without GPUs, or a `num_gpus` of 0. Received: "
            f"{logical_cpus}, with {len(cpus)} logical CPUs.",
            field="logical_cpus",
        )
    return cpus[:logical_cpus]


def _all_devices(platform, count):
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

"""The training step on PyTorch: eager, on one device."""

import keras
import torch
from keras import ops

from tpt_keras.data_generators.batches import prefetch
from tpt_keras.errors import UsageError
from tpt_keras.training.backends.backend import Backend
from tpt_keras.training.step import map_batch
from tpt_keras.training.step import sort_by_length
from tpt_keras.training.step import trim
from tpt_keras.training.step import weighted_batch

# Batches that a thread reads ahead.
PREFETCHED = 8


class TorchBackend(Backend):
    """The step on PyTorch, on one device and without a strategy."""

    def feed(self, trainer, batches, start_step, num_epochs):
        return prefetch(batches.iterate(start_step, num_epochs), PREFETCHED)

    def compile_train_step(self, trainer):
        seed = torch.initial_seed() << 32

        def function(batches):
            # Keras's dropout takes random numbers from PyTorch's generator,
            # whose state no checkpoint has.
            step = int(trainer.optimizer.iterations)
            torch.manual_seed((seed + step) % 2**63)
            # Keras passes a list of one batch.
            return train_step(trainer, batches[0])

        return function

    def compile_test_step(self, trainer):
        step = torch.no_grad()(trainer.test_step)
        return lambda batches: step(batches[0])


def train_step(trainer, data):
    """Trains on a batch; returns the epoch's metrics."""
    batch = weighted_batch(data, trainer.pad_id)
    total_weight = ops.sum(batch[2])
    variables = trainer.trainable_variables
    values = [variable.value for variable in variables]
    sums = None
    for part in _micro_batches(batch, trainer):
        loss, metrics = trainer.loss_and_metrics(
            trainer.model, part, training=True
        )
        # The share of the mean over all micro-batches.
        loss = ops.divide_no_nan(loss, total_weight)
        found = torch.autograd.grad(loss, values), metrics
        sums = (
            found
            if sums is None
            else keras.tree.map_structure(torch.add, sums, found)
        )
    gradients, metrics = sums
    with torch.no_grad():
        norm = torch.nn.utils.get_total_norm(gradients)
        if trainer.global_clipnorm is not None:
            scale = torch.clamp(trainer.global_clipnorm / norm, max=1.0)
            gradients = torch._foreach_mul(gradients, scale)
        trainer.optimizer.apply(gradients, variables)
        return trainer.track(metrics, norm)


def _micro_batches(batch, trainer):
    count = trainer.gradient_accumulation_steps
    if count == 1:
        return [batch]
    inputs, targets, weights = map_batch(
        # A batch may have fewer rows.
        lambda rows, padding: torch.tensor_split(rows, min(count, len(rows))),
        sort_by_length(batch, trainer.pad_id),
        trainer.pad_id,
    )
    parts = [
        ({name: parts[i] for name, parts in inputs.items()}, targets[i], w)
        for i, w in enumerate(weights)
    ]
    return [trim(part, trainer.pad_id) for part in parts]


def make_strategy(distribution=None, num_gpus=None, logical_cpus=None):
    """Returns `None`: a training is on the one device that Keras uses.

    The arguments are those on TensorFlow, which has several devices.
    """
    wanted = {
        "distribution": distribution not in (None, "none"),
        "num_gpus": num_gpus not in (None, torch.cuda.device_count()),
        "logical_cpus": logical_cpus not in (None, 1),
    }
    for field, is_wanted in wanted.items():
        if is_wanted:
            raise UsageError(
                f"The torch backend trains on one device, the first GPU if "
                f"there is one. Leave `{field}` out, or set KERAS_BACKEND to "
                "tensorflow or jax.",
                field=field,
            )

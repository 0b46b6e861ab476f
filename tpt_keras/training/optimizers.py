"""Keras optimizers and their learning rates over time.

The hyperparameters of an optimizer are a class in `config.py`.
"""

import collections
import math

import keras
from keras import ops

from tpt_keras.training.schedules import SCHEDULES

# The momentum that Muon starts its warm-up with.
FIRST_MOMENTUM = 0.85


@keras.saving.register_keras_serializable("tpt_keras")
class PyTorchAdam(keras.optimizers.Adam):
    """Adam whose epsilon is added where PyTorch, and so the paper, adds it.

    PyTorch adds it to the bias-corrected root of the second moment, Keras to
    the root itself ("epsilon hat" in Kingma and Ba), which makes it larger by
    `1 / sqrt(1 - beta_2**step)`: 14 times in the first step. As the gradient is
    clipped at a norm of 0.1, this moves weights by 4e-4 in ten steps.

    The arguments are those of `keras.optimizers.Adam`.
    """

    def update_step(self, gradient, variable, learning_rate):
        if keras.backend.backend() == "torch" and not self.amsgrad:
            _fused_adam(self, gradient, variable, learning_rate)
            return
        epsilon = self.epsilon
        step = ops.cast(self.iterations + 1, variable.dtype)
        beta_2_power = ops.power(ops.cast(self.beta_2, variable.dtype), step)
        self.epsilon = epsilon * ops.sqrt(1 - beta_2_power)
        try:
            super().update_step(gradient, variable, learning_rate)
        finally:
            self.epsilon = epsilon


def _fused_adam(optimizer, gradient, variable, learning_rate):
    """Makes PyTorch's step of one variable, in one pass."""
    from torch.optim.adam import adam

    index = optimizer._get_variable_index(variable)
    adam(
        [variable.value],
        [gradient],
        [optimizer._momentums[index].value],
        [optimizer._velocities[index].value],
        [],
        # It counts the steps itself.
        [ops.cast(optimizer.iterations, "float32")],
        fused=True,
        amsgrad=False,
        beta1=optimizer.beta_1,
        beta2=optimizer.beta_2,
        # A tensor: a number would be read from a GPU for every variable.
        lr=ops.convert_to_tensor(learning_rate),
        weight_decay=0.0,  # Keras has applied it
        eps=optimizer.epsilon,
        maximize=False,
    )


@keras.saving.register_keras_serializable("tpt_keras")
class Muon(keras.optimizers.Muon):
    """Muon for maps whose kernels have axes for heads, too.

    Keras's Muon (Jordan et al., 2024) makes the step of a matrix orthogonal,
    and leaves every other variable to Adam, also the kernels `(hidden_dim,
    num_heads, key_dim)` of an attention. Here a kernel is the matrix `(fan_in,
    fan_out)` that its `Projection` multiplies by. Adam updates embeddings,
    biases, norms and tables.

    The step of a matrix is scaled by `0.2 * sqrt(max(fan_in, fan_out))` times
    the learning rate, as in Moonlight (Liu et al., 2025), so that its elements
    are as large as those of an Adam step. Matrices of one shape, and their
    transposes, are made orthogonal together. Both parts have the same weight
    decay; `adam_weight_decay` is not used.

    Args:
        *args: See `keras.optimizers.Muon`.
        momentum_warmup_steps: Steps over which the momentum rises from 0.85.
            Defaults to `0`, a constant momentum.
        newton_schulz_dtype: Dtype of the products that make a step orthogonal.
            Defaults to `"float32"`; `"bfloat16"` is faster on a GPU.
        **kwargs: See `keras.optimizers.Muon`.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny", num_layers=1)
    >>> optimizer = Muon(1e-3)
    >>> optimizer.build(model.trainable_variables)
    >>> sum(velocity is None for velocity in optimizer.adam_velocities)
    20
    """

    def __init__(
        self,
        *args,
        momentum_warmup_steps=0,
        newton_schulz_dtype="float32",
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.momentum_warmup_steps = momentum_warmup_steps
        self.newton_schulz_dtype = newton_schulz_dtype

    def build(self, variables):
        super().build(variables)
        # A step gets the backend's variables, which know only their own shape.
        self._matrix_shapes = list(map(_matrix_shape, variables))

    def _should_use_adamw(self, variable):
        # By its own name and not by its path, for an embedding layer has maps
        # too; and a table of positions or of roles is no map.
        is_kernel = variable.name.endswith("kernel")
        return not is_kernel or len(_matrix_shape(variable)) != 2

    def _apply_weight_decay(self, variables):
        # Keras's own assigns variables, which replicas must not.
        super(keras.optimizers.Muon, self)._apply_weight_decay(variables)

    def _backend_update_step(self, gradients, variables, learning_rate):
        if keras.backend.backend() == "tensorflow":
            # Sums over the replicas and calls `_distributed_tf_update_step`.
            super()._backend_update_step(gradients, variables, learning_rate)
        else:
            self._update_together(gradients, variables, learning_rate)

    def _distributed_tf_update_step(
        self, strategy, gradients_and_variables, learning_rate
    ):
        gradients, variables = zip(*gradients_and_variables)
        # On each device once, with its copies of all variables.
        strategy.extended.update(
            variables[0],
            lambda _, *args: self._update_together(*args),
            args=(gradients, variables, learning_rate),
            group=False,
        )

    def _update_together(self, gradients, variables, learning_rate):
        momentum = self._momentum_now()
        stacks = collections.defaultdict(list)
        for gradient, variable in zip(gradients, variables):
            index = self._get_variable_index(variable)
            if self.adam_velocities[index] is not None:
                self.update_step(gradient, variable, learning_rate)
                continue
            average = self.momentums[index]
            share = ops.cast(momentum, average.dtype)
            step = ops.add(gradient, ops.multiply(share, average))
            self.assign(average, step)
            if self.nesterov:
                step = ops.add(gradient, ops.multiply(share, step))
            rows, columns = shape = self._matrix_shapes[index]
            step = ops.reshape(step, shape)
            if rows > columns:
                step = ops.transpose(step)
            stacks[tuple(step.shape)].append((step, variable, rows > columns))
        for (_, columns), members in stacks.items():
            steps, variables, is_transposed = zip(*members)
            steps = self._orthogonal(ops.stack(steps))
            rate = ops.cast(learning_rate, steps.dtype)
            if self.rms_rate is not None:
                rate = rate * self.rms_rate * math.sqrt(columns)
            steps = ops.unstack(steps * rate)
            for step, variable, turn in zip(steps, variables, is_transposed):
                step = ops.transpose(step) if turn else step
                self.assign_sub(variable, ops.reshape(step, variable.shape))

    def _momentum_now(self):
        if not self.momentum_warmup_steps:
            return self.momentum
        steps = ops.cast(self.iterations, "float32")
        share = ops.minimum(1.0, steps / self.momentum_warmup_steps)
        return FIRST_MOMENTUM + share * (self.momentum - FIRST_MOMENTUM)

    def _orthogonal(self, matrices):
        """Makes matrices with more columns than rows nearly orthogonal."""
        # The norm in float32, because a sum in bfloat16 stops to grow.
        norms = ops.sqrt(ops.sum(ops.square(matrices), (1, 2), keepdims=True))
        x = ops.cast(matrices / (norms + 1e-7), self.newton_schulz_dtype)
        a, b, c = self.muon_a, self.muon_b, self.muon_c
        for _ in range(self.ns_steps):
            gram = ops.matmul(x, ops.swapaxes(x, 1, 2))
            gram = b * gram + c * ops.matmul(gram, gram)
            x = a * x + ops.matmul(gram, x)
        return ops.cast(x, matrices.dtype)

    def get_config(self):
        return {
            **super().get_config(),
            "momentum_warmup_steps": self.momentum_warmup_steps,
            "newton_schulz_dtype": self.newton_schulz_dtype,
        }


def _matrix_shape(variable):
    return getattr(variable, "matrix_shape", variable.shape)


@keras.saving.register_keras_serializable("tpt_keras")
class WarmupAndDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises to its peak and then follows a schedule.

    Args:
        peak: Learning rate at the end of the warm-up.
        schedule: One of `SCHEDULES`.
        warmup_steps: Steps over which it rises from zero. `0`: it starts at
            the peak.
        train_steps: Step at which the schedule ends; its rate stays.

    Example:

    >>> schedule = WarmupAndDecay(1.0, "linear", 10, train_steps=30)
    >>> [float(schedule(step)) for step in (0, 5, 10, 20, 30, 40)]
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.0]
    """

    def __init__(self, peak, schedule, warmup_steps, train_steps):
        super().__init__()
        self.peak = peak
        self.schedule = schedule
        self.warmup_steps = warmup_steps
        self.train_steps = train_steps

    def __call__(self, step):
        step = ops.cast(step, "float32")
        # The warm-up may take all steps.
        steps = max(1, self.train_steps - self.warmup_steps)
        share = ops.clip((step - self.warmup_steps) / steps, 0.0, 1.0)
        rate = self.peak * SCHEDULES[self.schedule](share, ops.cos)
        if self.warmup_steps:
            rate = rate * ops.minimum(step / self.warmup_steps, 1.0)
        return rate

    def get_config(self):
        return {
            "peak": self.peak,
            "schedule": self.schedule,
            "warmup_steps": self.warmup_steps,
            "train_steps": self.train_steps,
        }


def make_optimizer(config):
    """Builds the optimizer of a `TrainingConfig`, which does not clip.

    The training step clips, because it has the gradient of the whole batch.
    """
    chosen, run = config.optimizer, config.run
    rate = chosen.learning_rate
    # With `train_minutes`, the rate follows `learning_rate_in_time`.
    if not chosen.rate_is_constant and not run.train_minutes:
        rate = WarmupAndDecay(
            rate, chosen.schedule, chosen.warmup_steps, run.train_steps
        )
    optimizer = chosen.build(rate)
    optimizer.exclude_from_weight_decay(
        var_names=["bias", "gamma", "beta", "scale", "embeddings"]
    )
    return optimizer


def learning_rate_in_time(config, step, minutes):
    """Returns the learning rate of a training with `train_minutes`.

    The warm-up is counted in steps, the decay in minutes.
    """
    optimizer = config.optimizer
    rate = optimizer.learning_rate
    if step < optimizer.warmup_steps:
        rate *= step / optimizer.warmup_steps
    share = min(1.0, minutes / config.run.train_minutes)
    return rate * SCHEDULES[optimizer.schedule](share, math.cos)

"""Keras optimizers and their learning rates over time.

The hyperparameters of an optimizer are a class in `config.py`.
"""

import math

import keras
from keras import ops

from tpt_keras.training import backends


@keras.saving.register_keras_serializable("tpt_keras")
class PyTorchAdam(keras.optimizers.Adam):
    """Adam whose epsilon is added where PyTorch, and so the paper, adds it.

    PyTorch adds it to the bias-corrected root of the second moment, Keras to
    the root itself ("epsilon hat" in Kingma and Ba), which makes it larger by
    `1 / sqrt(1 - beta_2**step)`: 14 times in the first step. The norm of the
    whole gradient is clipped at 0.1, so that many an element is small enough
    for it to matter: with Keras's, weights differ from the authors' by 4e-4
    after ten steps.

    The arguments are those of `keras.optimizers.Adam`.
    """

    def update_step(self, gradient, variable, learning_rate):
        if backends.fused_adam and not self.amsgrad:
            backends.fused_adam(self, gradient, variable, learning_rate)
            return
        epsilon = self.epsilon
        step = ops.cast(self.iterations + 1, variable.dtype)
        beta_2_power = ops.power(ops.cast(self.beta_2, variable.dtype), step)
        self.epsilon = epsilon * ops.sqrt(1 - beta_2_power)
        try:
            super().update_step(gradient, variable, learning_rate)
        finally:
            self.epsilon = epsilon


@keras.saving.register_keras_serializable("tpt_keras")
class Muon(keras.optimizers.Muon):
    """Muon for maps whose kernels have axes for heads, too.

    Keras's Muon (Jordan et al., 2024; Liu et al., 2025) makes the step of a
    matrix orthogonal, and leaves every other variable to AdamW: so nearly all
    weights of an attention, whose kernels are `(hidden_dim, num_heads,
    key_dim)` and back. Here such a kernel is the matrix `(fan_in, fan_out)`
    that its `Projection` multiplies by, and is updated like one. What is no
    kernel is AdamW's: embeddings, biases, norms, tables.

    The arguments are those of `keras.optimizers.Muon`.

    Example:

    >>> model = Transformer.from_preset("tp_transformer_tiny", num_layers=1)
    >>> optimizer = Muon(1e-3)
    >>> optimizer.build(model.trainable_variables)
    >>> sum(velocity is None for velocity in optimizer.adam_velocities)
    20
    """

    def build(self, variables):
        super().build(variables)
        # A step gets the backend's variables, which know only their own shape.
        self._matrix_shapes = [
            _matrix_shape(variable) for variable in variables
        ]

    def _should_use_adamw(self, variable):
        # By its own name and not by its path, for an embedding layer has maps
        # too; and a table of positions or of roles is no map.
        is_kernel = variable.name.endswith("kernel")
        return not is_kernel or len(_matrix_shape(variable)) != 2

    def _muon_update_step(self, gradient, variable, lr, m):
        self.assign(m, ops.add(gradient, ops.multiply(self.momentum, m)))
        step = m
        if self.nesterov:
            step = ops.add(gradient, ops.multiply(self.momentum, m))
        shape = self._matrix_shapes[self._get_variable_index(variable)]
        step = self.zeropower_via_newtonschulz5(
            ops.reshape(step, shape), self.ns_steps
        )
        step = self.lr_adjust(ops.multiply(lr, step))
        self.assign_sub(variable, ops.reshape(step, variable.shape))


def _matrix_shape(variable):
    return getattr(variable, "matrix_shape", variable.shape)


def make_optimizer(config):
    """Builds the optimizer of a `TrainingConfig`.

    It does not clip: the training step clips, which has the gradient of the
    whole batch. Weight decay spares biases, layer norms and the embedding.
    """
    optimizer = config.optimizer.build(learning_rate_schedule(config))
    optimizer.exclude_from_weight_decay(
        var_names=["bias", "gamma", "beta", "embeddings"]
    )
    return optimizer


def learning_rate_schedule(config):
    """Returns the learning rate over steps: a Keras schedule, or a number.

    It is a number if the rate is constant, or follows the time as
    `learning_rate_in_time` does.
    """
    optimizer = config.optimizer
    rate, warmup_steps = optimizer.learning_rate, optimizer.warmup_steps
    is_constant = optimizer.schedule == "constant"
    if (is_constant and not warmup_steps) or config.run.train_minutes:
        return rate
    return keras.optimizers.schedules.CosineDecay(
        initial_learning_rate=0.0 if warmup_steps else rate,
        warmup_target=rate if warmup_steps else None,
        warmup_steps=warmup_steps,
        decay_steps=config.run.train_steps - warmup_steps,
        # Without decay, this is the warm-up of a constant rate.
        alpha=1.0 if is_constant else 0.0,
    )


def learning_rate_in_time(config, step, minutes):
    """Returns the learning rate of a training with `train_minutes`.

    The warm-up is counted in steps, the decay in minutes.
    """
    optimizer = config.optimizer
    rate = optimizer.learning_rate
    if step < optimizer.warmup_steps:
        rate *= step / optimizer.warmup_steps
    if optimizer.schedule == "cosine":
        share = min(1.0, minutes / config.run.train_minutes)
        rate *= (1.0 + math.cos(math.pi * share)) / 2.0
    return rate

"""Optimizers that Keras lacks."""

import keras
from keras import ops


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

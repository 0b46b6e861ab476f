import jax
import keras

from tpt_keras.training.global_norm import clip_by_global_norm
from tpt_keras.training.global_norm import global_norm


class JaxSteps:
    """The steps of a `TransformerTrainer` on JAX, as its mixin."""

    def feed(self, batches, start_step=0, num_epochs=None):
        """As `TensorFlowSteps.feed`: here a generator."""
        return batches.iterate(start_step, num_epochs)

    def train_step(self, state, data):
        if self.gradient_accumulation_steps > 1:
            raise NotImplementedError(
                "gradient_accumulation_steps are for TensorFlow alone."
            )
        weights, others, optimizer_variables, metrics = state
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        gradients, (_, y_pred, others, metrics) = jax.grad(
            self.compute_loss_and_updates, has_aux=True
        )(
            weights,
            others,
            metrics,
            x,
            y,
            sample_weight,
            training=True,
            optimizer_variables=optimizer_variables,
        )
        with _values(self.optimizer.variables, optimizer_variables):
            loss_scale = self.optimizer.scale_loss(1.0)
        norm = global_norm(gradients)
        if self.global_clipnorm is not None:
            gradients = clip_by_global_norm(
                gradients, self.global_clipnorm * loss_scale, norm
            )
        weights, optimizer_variables = self.optimizer.stateless_apply(
            optimizer_variables, gradients, weights
        )
        with _values(self.metrics_variables, metrics) as scope:
            self.compute_metrics(x, y, y_pred, sample_weight)
            self._watch(x, y, norm / loss_scale)
            logs = self.get_metrics_result()
        metrics = [
            new
            if (new := scope.get_current_value(variable)) is not None
            else old
            for variable, old in zip(self.metrics_variables, metrics)
        ]
        return logs, (weights, others, optimizer_variables, metrics)


def _values(variables, values):
    """A scope in which variables have other values."""
    return keras.StatelessScope(state_mapping=list(zip(variables, values)))

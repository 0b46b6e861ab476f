import keras
from keras import ops

from tpt_keras.training.token_accuracy import TokenAccuracy
from tpt_keras.training.token_cross_entropy import TokenCrossEntropy
from tpt_keras.training.token_weights import token_weights

if keras.backend.backend() == "tensorflow":
    from tpt_keras.training.tensorflow_steps import TensorFlowSteps as Steps
else:
    from tpt_keras.training.jax_steps import JaxSteps as Steps


class Trainer(Steps, keras.Model):
    """Trains and evaluates a model of tokens with `fit` and `evaluate`.

    The loss is the mean over all non-padding target tokens of the global
    batch, whatever replica and micro-batch they fall on: sums are divided by
    the number of tokens of all replicas. Gradients are summed over replicas
    before their global norm is clipped, where Keras's own step clips the
    gradient of every replica. So neither replicas nor micro-batches change
    what is learned.

    With `sample_weight`, `(batch,)` or `(batch, target_length)`, the loss and
    the accuracies are weighted means; a token of weight 0 is like padding. The
    loss is divided by the weights' sum, so that their scale does not matter.

    Args:
        transformer: The model, made under the strategy's scope where there is
            one.
        pad_id: Token id of padding, which counts for nothing.
        global_clipnorm: Norm that the whole gradient is clipped at. Defaults
            to none.
        gradient_accumulation_steps: Micro-batches that every batch is cut
            into, to take less memory.
    """

    # What an evaluation gives; the rest is watched in training alone.
    EVALUATED = ("loss", "token_accuracy")

    def __init__(
        self,
        transformer,
        pad_id,
        global_clipnorm=None,
        gradient_accumulation_steps=1,
    ):
        super().__init__(name="trainer", dtype=transformer.dtype_policy)
        self.autocast = False  # as in the model: token ids may be floats
        self.transformer = transformer
        self.global_clipnorm = global_clipnorm
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self._pad_id = pad_id
        self._token_losses = TokenCrossEntropy(pad_id, reduction="sum")
        self.loss_metric = keras.metrics.Mean("loss")
        self.accuracies = [TokenAccuracy(pad_id)]
        self.gradient_norm = keras.metrics.Mean("gradient_norm")
        self.tokens = keras.metrics.Sum("tokens")
        self.built = True

    def call(self, inputs, training=None):
        return self.transformer(inputs, training=training)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        weights = token_weights(y, self._pad_id, sample_weight)
        losses = self._token_losses(y, y_pred, weights)
        weight = ops.sum(weights)
        loss = ops.divide_no_nan(losses, weight)
        self.loss_metric.update_state(loss, weight)
        return loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        weights = token_weights(y, self._pad_id, sample_weight)
        for accuracy in self.accuracies:
            accuracy.update_state(y, y_pred, weights)
        return self.get_metrics_result()

    def _choose_shapes(self, batches):
        """Chooses the shapes that a training's batches are to have.

        For a backend that compiles a program for every shape.

        Args:
            batches: A `NumberedBatches`.
        """

    def _of_known_shapes(self, rows, make_array, batches=None):
        """A batch of each of the shapes that are known to come.

        Args:
            rows: Number of rows that batches are to have.
            make_array: Function that makes an array of a shape.
            batches: The `NumberedBatches` that come. Defaults to those that
                shapes were chosen for.
        """
        return ()

    def _in_few_shapes(self, batch, rows):
        """A batch in one of the shapes that were chosen, if it fits any.

        Args:
            batch: A batch of the trainer's data.
            rows: Number of rows that it is to have.
        """
        raise NotImplementedError

    def _num_tokens(self, token_ids):
        """Number of non-padding tokens, a float."""
        return ops.sum(token_weights(token_ids, self._pad_id))

    def _watch(self, inputs, targets, norm):
        """Updates what only training watches."""
        if self.dtype_policy.name == "mixed_float16":
            # Steps whose scaled gradients overflow are skipped, on purpose.
            norm, weight = ops.nan_to_num(norm, posinf=0.0), ops.isfinite(norm)
            self.gradient_norm.update_state(norm, weight)
        else:
            self.gradient_norm.update_state(norm)
        self.tokens.update_state(self._num_tokens(targets))

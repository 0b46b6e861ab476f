import keras
import tensorflow as tf
from keras import ops

from tpt_keras.training.distributed_fit import DistributedFit
from tpt_keras.training.sequence_accuracy import SequenceAccuracy
from tpt_keras.training.token_accuracy import TokenAccuracy
from tpt_keras.training.token_cross_entropy import TokenCrossEntropy
from tpt_keras.training.token_weights import token_weights


class TransformerTrainer(DistributedFit, keras.Model):
    """Trains and evaluates a `Transformer` with `fit` and `evaluate`.

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
        transformer: A `Transformer`, made under the strategy's scope where
            there is one.
        global_clipnorm: Norm that the whole gradient is clipped at. Defaults
            to none.
        gradient_accumulation_steps: Micro-batches that every batch is cut
            into, to take less memory.

    Example:

    ```python
    trainer = TransformerTrainer(transformer, global_clipnorm=0.1)
    trainer.compile(optimizer="adam", jit_compile=False)
    trainer.fit(problem_batches.dataset(), steps_per_epoch=100, epochs=10)
    ```
    """

    def __init__(
        self, transformer, global_clipnorm=None, gradient_accumulation_steps=1
    ):
        super().__init__(name="trainer", dtype=transformer.dtype_policy)
        self.transformer = transformer
        self.global_clipnorm = global_clipnorm
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self._pad_id = transformer.tokenizer.pad_id
        self._token_losses = TokenCrossEntropy(self._pad_id, reduction="sum")
        self.loss_metric = keras.metrics.Mean("loss")
        self.accuracies = [
            SequenceAccuracy(self._pad_id),
            TokenAccuracy(self._pad_id),
        ]
        self.gradient_norm = keras.metrics.Mean("gradient_norm")
        self.examples = keras.metrics.Sum("examples")
        self.tokens = keras.metrics.Sum("tokens")
        self.built = True

    def call(self, inputs, training=None):
        return self.transformer(inputs, training=training)

    def train_step(self, data):
        inputs, targets, sample_weight = keras.utils.unpack_x_y_sample_weight(
            data
        )
        weights = token_weights(targets, self._pad_id, sample_weight)
        # The gradients are summed here and not by the optimizer, which would
        # clip them before: it gets equal shares of the finished sum.
        replicas = tf.distribute.get_replica_context()
        total_weight = replicas.all_reduce("SUM", ops.sum(weights))
        gradients = self._accumulated_gradients(
            (inputs, targets, weights), total_weight
        )
        gradients = replicas.all_reduce("SUM", gradients)
        loss_scale = self.optimizer.scale_loss(1.0)
        norm = tf.linalg.global_norm(gradients)
        if self.global_clipnorm is not None:
            gradients, _ = tf.clip_by_global_norm(
                gradients, self.global_clipnorm * loss_scale, norm
            )
        share = 1.0 / replicas.num_replicas_in_sync
        self.optimizer.apply(
            [gradient * share for gradient in gradients],
            self.transformer.trainable_variables,
        )
        self._watch(inputs, targets, norm / loss_scale)
        return self._results()

    def test_step(self, data):
        inputs, targets, sample_weight = keras.utils.unpack_x_y_sample_weight(
            data
        )
        weights = token_weights(targets, self._pad_id, sample_weight)
        logits = self(inputs, training=False)
        losses = self._token_losses(targets, logits, weights)
        self._update(targets, logits, weights, losses)
        return self._results()

    def _accumulated_gradients(self, batch, total_weight):
        """This replica's part of the gradient of the batch's mean loss."""
        micro_batches = self.gradient_accumulation_steps
        if micro_batches == 1:
            return self._gradients(*batch, total_weight)
        inputs, targets, weights = batch
        parts = (
            {
                name: self._cut(ids, self._pad_id)
                for name, ids in inputs.items()
            },
            self._cut(targets, self._pad_id),
            self._cut(weights, 0.0),
        )

        def add_micro_batch(index, sums):
            batch = tf.nest.map_structure(lambda part: part[index], parts)
            gradients = self._gradients(*batch, total_weight)
            return index + 1, [s + g for s, g in zip(sums, gradients)]

        _, sums = tf.while_loop(
            lambda index, sums: index < micro_batches,
            add_micro_batch,
            (
                tf.constant(0),
                [
                    tf.zeros(variable.shape, variable.dtype)
                    for variable in self.transformer.trainable_variables
                ],
            ),
            # One after the other, or the memory would not be saved.
            parallel_iterations=1,
        )
        return sums

    def _cut(self, rows, padding):
        """Rows `(batch, length)` as `(micro_batches, rows, length)`.

        All micro-batches are of a size, the last ones' last rows padding: of a
        slice that ends behind the last row, XLA makes one of the whole batch.
        """
        count, length = tf.unstack(tf.shape(rows))
        micro_batches = self.gradient_accumulation_steps
        size = -(-count // micro_batches)
        added = [[0, micro_batches * size - count], [0, 0]]
        rows = tf.pad(rows, added, constant_values=padding)
        return tf.reshape(rows, (micro_batches, size, length))

    def _gradients(self, inputs, targets, weights, total_weight):
        variables = [v.value for v in self.transformer.trainable_variables]
        with tf.GradientTape() as tape:
            logits = self(inputs, training=True)
            losses = self._token_losses(targets, logits, weights)
            loss = self.optimizer.scale_loss(
                ops.divide_no_nan(losses, total_weight)
            )
        self._update(targets, logits, weights, losses)
        # The embedding's comes as slices.
        return [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(loss, variables)
        ]

    def _num_tokens(self, token_ids):
        """Number of tokens that are no padding, a float."""
        return ops.sum(token_weights(token_ids, self._pad_id))

    def _update(self, targets, logits, weights, losses):
        """Updates what training and evaluation both watch."""
        weight = ops.sum(weights)
        self.loss_metric.update_state(ops.divide_no_nan(losses, weight), weight)
        for accuracy in self.accuracies:
            accuracy.update_state(targets, logits, weights)

    def _watch(self, inputs, targets, norm):
        """Updates what only training watches."""
        if self.dtype_policy.name == "mixed_float16":
            # Steps whose scaled gradients overflow are skipped, on purpose.
            norm, weight = ops.nan_to_num(norm, posinf=0.0), ops.isfinite(norm)
            self.gradient_norm.update_state(norm, weight)
        else:
            self.gradient_norm.update_state(norm)
        is_answer = ops.any(ops.not_equal(targets, self._pad_id), axis=-1)
        self.examples.update_state(ops.cast(is_answer, "float32"))
        self.tokens.update_state(
            self._num_tokens(inputs["encoder_token_ids"])
            + self._num_tokens(targets)
        )

    def _results(self):
        return {metric.name: metric.result() for metric in self.metrics}

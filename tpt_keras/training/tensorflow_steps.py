import keras
import tensorflow as tf
from keras import ops

from tpt_keras.training.distributed_fit import DistributedFit
from tpt_keras.training.global_norm import clip_by_global_norm
from tpt_keras.training.global_norm import global_norm
from tpt_keras.training.tensorflow_distribution import distributed_dataset
from tpt_keras.training.token_weights import token_weights


class TensorFlowSteps(DistributedFit):
    """The steps of a `TransformerTrainer` on TensorFlow, as its mixin.

    What only TensorFlow needs: tapes, micro-batches in a loop of the graph,
    and `tf.distribute`'s replicas.
    """

    # The metrics at a batch's end are those after it.
    steps_behind = 0

    def feed(self, batches, start_step=0, num_epochs=None):
        """What `fit` and `evaluate` take: each replica its part of a batch.

        Args:
            batches: A `ProblemBatches`.
            start_step: Number of the first batch.
            num_epochs: How many epochs. Defaults to no end.

        Returns:
            A dataset.
        """
        return distributed_dataset(
            self.distribute_strategy, batches, start_step, num_epochs
        )

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
        norm = global_norm(gradients)
        if self.global_clipnorm is not None:
            gradients = clip_by_global_norm(
                gradients, self.global_clipnorm * loss_scale, norm
            )
        share = 1.0 / replicas.num_replicas_in_sync
        self.optimizer.apply(
            [gradient * share for gradient in gradients],
            self.transformer.trainable_variables,
        )
        self._watch(inputs, targets, norm / loss_scale)
        return self.get_metrics_result()

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
        weight = ops.sum(weights)
        with tf.GradientTape() as tape:
            logits = self(inputs, training=True)
            loss = self.compute_loss(inputs, targets, logits, weights)
            # Its share of the mean over all replicas and micro-batches.
            share = ops.divide_no_nan(weight, total_weight)
            loss = self.optimizer.scale_loss(loss * share)
        self.compute_metrics(inputs, targets, logits, weights)
        # The embedding's comes as slices.
        return [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(loss, variables)
        ]

import tensorflow as tf


class DistributedFit:
    """What Keras's `fit` lacks on several replicas, as a mixin of models.

    Keras 3 (keras-team/keras issues 19246 and 20585) breaks there in three
    places:

    - before the first step it adds up the replicas' inputs to learn their
      shape, for a build that a built model does not need: with several
      workers always, under `MirroredStrategy` where the replicas' parts of a
      batch are padded to different lengths;
    - with several workers it takes the mean of every step's results over axis
      0, which the results of metrics, scalars, do not have;
    - with `steps_per_execution` it takes batches out of optionals within a
      `tf.cond`, where TensorFlow loses the replicas' tensors.

    So the functions that `fit` and `evaluate` call are made here, with several
    replicas. They are not compiled by XLA: Keras would have it compile what
    runs on several devices for one of them, and collective operations are
    nothing that it takes. `jit_compile` has no effect.

    tests/training/distributed_fit_test.py fails when Keras heals any of it.
    """

    def make_train_function(self, force=False):
        if self.distribute_strategy.num_replicas_in_sync == 1:
            return super().make_train_function(force)
        if self.train_function is not None and not force:
            return self.train_function
        step = self._on_replicas(self.train_step)

        def steps(iterator):
            def body(index):
                step(next(iterator))
                return index + 1

            # Without a turn, too, it would make the graph twice as large.
            if self.steps_per_execution > 1:
                tf.while_loop(
                    lambda index: index < self.steps_per_execution - 1,
                    body,
                    [tf.constant(0)],
                    parallel_iterations=1,
                )
            return step(next(iterator))

        self.train_function = _or_of_one_batch(self._compiled(steps), step)

    def make_test_function(self, force=False):
        if self.distribute_strategy.num_replicas_in_sync == 1:
            return super().make_test_function(force)
        if self.test_function is not None and not force:
            return self.test_function
        step = self._on_replicas(self.test_step)
        next_step = self._compiled(lambda iterator: step(next(iterator)))

        def steps(iterator):
            # One by one, for the data may end before an execution does.
            results = None
            for _ in range(self.steps_per_execution):
                try:
                    results = next_step(iterator)
                except tf.errors.OutOfRangeError:
                    if results is None:
                        raise
                    break
            return results

        self.test_function = _or_of_one_batch(steps, step)

    def _on_replicas(self, step):
        """A function of all replicas' parts of a batch."""
        strategy = self.distribute_strategy

        def on_replicas(batch):
            results = strategy.run(step, args=(batch,))
            return {
                name: strategy.reduce("MEAN", result, axis=None)
                for name, result in results.items()
            }

        return self._compiled(on_replicas)

    def _compiled(self, function):
        if self.run_eagerly:
            return function
        return tf.function(function, reduce_retracing=True, autograph=False)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # All that is left to build, and not to be made within a graph.
        if self.optimizer is not None and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)


def _or_of_one_batch(steps, step):
    """Steps of a distributed dataset, or the one of `train_on_batch`."""

    def function(iterator):
        if isinstance(iterator, tf.distribute.DistributedIterator):
            return steps(iterator)
        return step(next(iterator))

    return function

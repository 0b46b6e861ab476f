import tensorflow as tf


class MultiWorkerFit:
    """What Keras's `fit` lacks under `MultiWorkerMirroredStrategy`, as a mixin.

    Keras 3 (keras-team/keras issue 20585) breaks there in two places, and the
    first of them under `MirroredStrategy` too where the replicas' parts of a
    batch are padded to different lengths:

    - before the first step it adds up the replicas' inputs to learn their
      shape, for a build that a built model does not need;
    - it takes the mean of every step's results over axis 0, which the results
      of metrics, scalars, do not have.

    tests/training/multi_worker_fit_test.py fails when Keras heals either.
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # All that is left to build, and not to be made within a graph.
        if self.optimizer is not None and not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)

    def reducible(self, results):
        """Results of a step as Keras can reduce them.

        Args:
            results: Dict of scalars.

        Returns:
            Dict of the same, in multi-worker mode with the axis `(1,)`.
        """
        if not isinstance(
            self.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy
        ):
            return results
        return {name: result[None] for name, result in results.items()}

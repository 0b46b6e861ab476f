import keras
import numpy as np
import tensorflow as tf

from tpt_keras.errors import UsageError


class NonFiniteLossError(UsageError):
    """A training has come to a loss or a gradient that is not finite.

    Args:
        message: What happened, and when.
        step: The step, counting from 1.
    """

    def __init__(self, message, step):
        super().__init__(message)
        self.step = step


class FiniteLoss(keras.callbacks.Callback):
    """Ends a training at once when its loss is not finite any more.

    Args:
        describe: Function of a step, counting from 1, that returns what there
            is to say about it.
        steps_before: Function of an epoch's number, as Keras counts it, that
            returns the number of steps before it.

    Raises:
        NonFiniteLossError: Out of `fit`, before a checkpoint is written.
    """

    def __init__(self, describe, steps_before):
        super().__init__()
        self._describe = describe
        self._count_steps_before = steps_before

    def on_epoch_begin(self, epoch, logs=None):
        self._steps_before = self._count_steps_before(epoch)

    def on_train_batch_end(self, batch, logs=None):
        # Means over the epoch so far: once not finite, they remain so.
        if np.all(np.isfinite([logs["loss"], logs["gradient_norm"]])):
            return
        self._fail("The loss or the gradient", batch)

    def on_epoch_end(self, epoch, logs=None):
        # The last step's loss was computed before it could ruin the weights.
        weights = [v.value for v in self.model.trainable_variables]
        if not np.isfinite(tf.linalg.global_norm(weights)):
            self._fail("The norm of the weights", self.params["steps"] - 1)

    def _fail(self, culprit, batch):
        step = self._steps_before + batch + 1
        raise NonFiniteLossError(
            f"{culprit} of step {step} is not finite ({self._describe(step)}).",
            step,
        )

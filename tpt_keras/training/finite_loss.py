import keras
import numpy as np

from tpt_keras.errors import UsageError
from tpt_keras.training.step import global_norm


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
        steps_before: Function that returns the number of steps before the
            current epoch.
        steps_behind: How many steps the logs at a batch's end are behind it,
            but for the first, which has its own.

    Raises:
        NonFiniteLossError: Out of `fit`, before a checkpoint is written.
    """

    def __init__(self, describe, steps_before, steps_behind=0):
        super().__init__()
        self._describe = describe
        self._steps_before = steps_before
        self._steps_behind = steps_behind
        self._last_batch = 0

    def on_train_batch_end(self, batch, logs=None):
        self._last_batch = batch
        behind = batch - self._steps_behind
        self._check(logs, behind if behind >= 0 else batch)

    def on_epoch_end(self, epoch, logs=None):
        self._check(logs, self._last_batch)

    def _check(self, logs, batch):
        # Means over the epoch so far: once not finite, they remain so.
        if not np.all(np.isfinite([logs["loss"], logs["gradient_norm"]])):
            step = self._steps_before() + batch + 1
            raise _error("The loss or the gradient", step, self._describe)


def check_weights(weights, step, describe):
    """Raises if weights are not finite.

    Args:
        weights: List of variables.
        step: The last step, counting from 1.
        describe: See `FiniteLoss`.

    Raises:
        NonFiniteLossError: If the norm of all weights is not finite.
    """
    if not np.isfinite(float(global_norm([w.value for w in weights]))):
        raise _error("The norm of the weights", step, describe)


def _error(culprit, step, describe):
    return NonFiniteLossError(
        f"{culprit} of step {step} is not finite ({describe(step)}).", step
    )

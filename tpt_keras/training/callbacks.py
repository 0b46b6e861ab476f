"""Callbacks of a training: finite losses, time limit, profile, progress."""

import logging
import time

import keras
import numpy as np

from tpt_keras.errors import UsageError
from tpt_keras.training.backends import start_profile
from tpt_keras.training.backends import stop_profile
from tpt_keras.training.optimizers import learning_rate_in_time
from tpt_keras.training.step import global_norm

# Share of the peak learning rate that the rate may be off by. A change in
# every step would keep the device waiting.
_RATE_TOLERANCE = 0.005
_SECONDS_PER_LINE = 30

_log = logging.getLogger(__name__)


class NonFiniteLossError(UsageError):
    """A loss or a gradient that is not finite.

    Args:
        message: The message.
        step: The step, counted from 1.
    """

    def __init__(self, message, step):
        super().__init__(message)
        self.step = step


class FiniteLoss(keras.callbacks.Callback):
    """Ends a training at once when its loss is not finite.

    Args:
        describe: Function that describes a step, counted from 1.
        steps_before: Function that returns the number of steps before the
            current epoch.
        steps_behind: Steps between the logs at the end of a batch and the
            batch. The first batch has its own.

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
        # Means over the epoch so far: once not finite, they stay so.
        if not np.all(np.isfinite([logs["loss"], logs["gradient_norm"]])):
            step = self._steps_before() + batch + 1
            raise _error("The loss or the gradient", step, self._describe)


def check_weights(weights, step, describe):
    """Raises an error if weights are not finite.

    Args:
        weights: List of variables.
        step: The last step, counted from 1.
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


class TimeLimit(keras.callbacks.Callback):
    """Ends a training after its time, which the learning rate follows.

    Args:
        config: A `TrainingConfig` with `train_minutes`.
        step: Function that returns the number of steps before the epoch.
        seconds: Function that returns the seconds of the training so far.
    """

    def __init__(self, config, step, seconds):
        super().__init__()
        self._config = config
        self._step = step
        self._seconds = seconds
        self._rate = None

    def on_train_begin(self, logs=None):
        # Before the compiled step reads the variables.
        self._follow(self._step())

    def on_train_batch_end(self, batch, logs=None):
        self._follow(self._step() + batch + 1, self._sync)
        if self._seconds() >= 60 * self._config.run.train_minutes:
            self.model.stop_training = True

    def _follow(self, step, sync=lambda: None):
        minutes = self._seconds() / 60
        rate = learning_rate_in_time(self._config, step, minutes)
        tolerance = _RATE_TOLERANCE * self._config.optimizer.learning_rate
        if self._rate is None or abs(rate - self._rate) > tolerance:
            sync()
            self.model.optimizer.learning_rate = rate
            self._rate = rate

    def _sync(self):
        # The results of JAX's step are not in the variables yet.
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()


class Profiler(keras.callbacks.Callback):
    """Profiles some steps for TensorBoard.

    Args:
        folder: TensorBoard's folder.
        first: First optimizer step to profile, counted from 1.
        last: Last step to profile.
        steps_before: Function that returns the number of steps before the
            current epoch.
        steps_per_execution: Steps of an execution; all are profiled or none.
    """

    def __init__(
        self, folder, first, last, steps_before, steps_per_execution=1
    ):
        super().__init__()
        self._folder = str(folder)
        self._first = first
        self._last = last
        self._steps_before = steps_before
        self._steps_per_execution = steps_per_execution
        self._is_profiling = False

    def on_epoch_begin(self, epoch, logs=None):
        self._first_step = self._steps_before() + 1

    def on_train_batch_begin(self, batch, logs=None):
        step = self._first_step + batch
        last_of_execution = step + self._steps_per_execution - 1
        if (
            not self._is_profiling
            and self._first <= last_of_execution
            and step <= self._last
        ):
            start_profile(self._folder)
            self._is_profiling = True

    def on_train_batch_end(self, batch, logs=None):
        if self._first_step + batch >= self._last:
            self.stop()

    def on_train_end(self, logs=None):
        self.stop()

    def stop(self):
        """Ends the profile, if it has begun."""
        if self._is_profiling:
            stop_profile()
            self._is_profiling = False


class ProgressLines(keras.callbacks.Callback):
    """Logs a line from time to time within a long interval.

    Args:
        steps_before: Function that returns the number of steps before the
            current epoch.
    """

    def __init__(self, steps_before):
        super().__init__()
        self._steps_before = steps_before

    def on_epoch_begin(self, epoch, logs=None):
        self._last = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        now = time.monotonic()
        if now - self._last > _SECONDS_PER_LINE:
            self._last = now
            _log.info("%s", progress_line(self._steps_before() + batch, logs))


def progress_line(step, metrics, prefix=""):
    """Formats the metrics of a step in at most 80 columns.

    Args:
        step: Number of steps so far.
        metrics: Dict of numbers.
        prefix: Prefix of the metrics' names: `"val_"`.

    Returns:
        The line.

    Example:

    >>> progress_line(40, {"loss": 1.5, "token_accuracy": 0.5, "tokens": 9.0})
    'step 40  loss 1.500  tokens 50.0%'
    """
    parts = [f"step {step}"]
    for name, text in (
        ("loss", "{}loss {:.3f}"),
        ("bits_per_character", "{}bits {:.3f}"),
        ("sequence_accuracy", "answers {1:.1%}"),
        ("token_accuracy", "tokens {1:.1%}"),
        ("learning_rate", "rate {1:.2g}"),
        ("examples_per_second", "{1:.0f} ex/s"),
    ):
        if f"{prefix}{name}" in metrics:
            shown = prefix.replace("val_", "validation ")
            parts.append(text.format(shown, metrics[f"{prefix}{name}"]))
    return "  ".join(parts)

import keras

from tpt_keras.training.backends import start_profile
from tpt_keras.training.backends import stop_profile


class Profiler(keras.callbacks.Callback):
    """Profiles some steps for TensorBoard.

    Args:
        folder: TensorBoard's folder.
        first: First optimizer step to profile, counting from 1.
        last: Last step to profile.
        steps_before: Function that returns the number of steps before the
            current epoch.
        steps_per_execution: Steps that are made at once, of which all are
            profiled or none.
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
        last_at_once = step + self._steps_per_execution - 1
        if (
            not self._is_profiling
            and self._first <= last_at_once
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
        """Ends the profile that has begun, if there is one."""
        if self._is_profiling:
            stop_profile()
            self._is_profiling = False

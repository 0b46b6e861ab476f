import keras
import tensorflow as tf


class Profiler(keras.callbacks.Callback):
    """Profiles some steps for TensorBoard.

    Args:
        folder: TensorBoard's folder.
        first: First optimizer step to profile, counting from 1.
        last: Last step to profile.
        steps_per_epoch: Steps that Keras takes for an epoch.
    """

    def __init__(self, folder, first, last, steps_per_epoch):
        super().__init__()
        self._folder = str(folder)
        self._first = first
        self._last = last
        self._steps_per_epoch = steps_per_epoch
        self._is_profiling = False

    def on_epoch_begin(self, epoch, logs=None):
        self._steps_before = epoch * self._steps_per_epoch

    def on_train_batch_begin(self, batch, logs=None):
        step = self._steps_before + batch + 1
        if not self._is_profiling and self._first <= step <= self._last:
            tf.profiler.experimental.start(self._folder)
            self._is_profiling = True

    def on_train_batch_end(self, batch, logs=None):
        if self._steps_before + batch + 1 >= self._last:
            self.on_train_end()

    def on_train_end(self, logs=None):
        if self._is_profiling:
            tf.profiler.experimental.stop()
            self._is_profiling = False

import keras

from tpt_keras.training.optimizers import learning_rate_in_time

# Share of the peak that the learning rate may be off by: to change it in every
# step would keep a device waiting.
_TOLERANCE = 0.005


class TimeLimit(keras.callbacks.Callback):
    """Ends a training with its time, which the learning rate follows.

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
        # Where a compiled step takes the variables from has not begun.
        self._follow(self._step())

    def on_train_batch_end(self, batch, logs=None):
        self._follow(self._step() + batch + 1, self._sync)
        if self._seconds() >= 60 * self._config.run.train_minutes:
            self.model.stop_training = True

    def _follow(self, step, sync=lambda: None):
        minutes = self._seconds() / 60
        rate = learning_rate_in_time(self._config, step, minutes)
        tolerance = _TOLERANCE * self._config.optimizer.learning_rate
        if self._rate is None or abs(rate - self._rate) > tolerance:
            sync()
            self.model.optimizer.learning_rate = rate
            self._rate = rate

    def _sync(self):
        # What JAX's step returned is not in the variables yet.
        if keras.backend.backend() == "jax":
            self.model.jax_state_sync()

"""The intervals of a training, from one checkpoint to the next."""

import logging
import time

import keras
import numpy as np

from tpt_keras.errors import UsageError
from tpt_keras.processes import raise_if_interrupted
from tpt_keras.training.optimizers import learning_rate_in_time
from tpt_keras.training.state import model_folder
from tpt_keras.training.state.logs import MetricsLog
from tpt_keras.training.step import global_norm

# The rate is set when it is off by this share of the peak rate. If it were set
# in every step, the device would wait.
_RATE_TOLERANCE = 0.005
_SECONDS_PER_LINE = 30

_log = logging.getLogger(__name__)


class NonFiniteLossError(UsageError):
    """A loss, a gradient or weights that are not finite."""


class Intervals(keras.callbacks.Callback):
    """Measures, evaluates, logs and saves after every interval.

    An interval lies between two checkpoints and is an epoch for Keras. Its end
    evaluates if that is due, writes the metrics, keeps the best model, and
    saves the state last. A training that is killed before that repeats the
    interval, so that nothing is lost or written twice.

    Args:
        trainer: The `Trainer` of the model.
        state: The `TrainingState`, restored.
        config: The `TrainingConfig`.
        learner: The `Learner`.
        model_dir: Folder for logs and the best model.

    Raises:
        NonFiniteLossError: Out of `fit`, before a checkpoint is written.
    """

    def __init__(self, trainer, state, config, learner, model_dir):
        super().__init__()
        self._trainer = trainer
        self.state = state
        self._config = config
        self._learner = learner
        self._model_dir = model_dir
        self._log = MetricsLog(model_dir)
        self._log.drop_after(state.step)

    @property
    def seconds(self):
        """Duration of the training so far, in all its runs."""
        return time.perf_counter() - self._start

    def on_train_begin(self, logs=None):
        # What an accelerator compiles ahead is compiled.
        self._start = time.perf_counter() - self.state.seconds

    def on_epoch_begin(self, epoch, logs=None):
        self._interval_start = self._last_line = time.perf_counter()
        self._waited_before = self._learner.training.seconds_waited

    def on_train_batch_end(self, batch, logs=None):
        raise_if_interrupted()
        # Fewer than in the interval if a callback ends it.
        self._steps = batch + 1
        if self.state.step + self._steps == self._config.run.train_steps:
            # The last interval may be shorter.
            self.model.stop_training = True
        now = time.perf_counter()
        if now - self._last_line > _SECONDS_PER_LINE:
            self._last_line = now
            _log.info("%s", progress_line(self.state.step + batch, logs))

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.perf_counter() - self._interval_start
        self._check_finite(logs)
        self.state.step += self._steps
        metrics = {**logs, "minutes": self.seconds / 60}
        # Adding zero turns a variable of several replicas into a tensor.
        rate = keras.ops.add(self.model.optimizer.learning_rate, 0.0)
        metrics["learning_rate"] = float(rate)
        for name in ("examples", "tokens"):
            if name in metrics:
                metrics[f"{name}_per_second"] = metrics.pop(name) / seconds
        waited = self._learner.training.seconds_waited
        if waited is not None:
            share = min((waited - self._waited_before) / seconds, 1.0)
            metrics["waiting_for_data"] = share
            _log.info("Waited for problems %.0f%% of the time.", 100 * share)
        often = self._config.run.steps_per_evaluation
        if self.state.step % often == 0 or self.model.stop_training:
            metrics |= self._learner.evaluate(self._trainer)
            if self.state.improves(self._learner.score(metrics)):
                model_folder.save_model(self.model, self._model_dir, best=True)
        _log.info("%s", progress_line(self.state.step, metrics))
        if "val_loss" in metrics:
            _log.info("%s", progress_line(self.state.step, metrics, "val_"))
        # For the callbacks that follow.
        logs |= {k: v for k, v in metrics.items() if "/" not in k}
        self._log.write({"step": self.state.step, **metrics})
        self.state.seconds = self.seconds
        self.state.save()

    def _check_finite(self, logs):
        # The last loss was computed before the last update of the weights.
        weights = [w.value for w in self.model.trainable_variables]
        norms = logs["loss"], logs["gradient_norm"], global_norm(weights)
        if not all(np.isfinite(keras.ops.convert_to_numpy(n)) for n in norms):
            step = self.state.step
            raise NonFiniteLossError(
                f"A loss, a gradient or a weight of the steps {step + 1} to "
                f"{step + self._steps} is not finite. The checkpoint of step "
                f"{step} is kept. Train with a lower `learning_rate` in "
                "another folder.",
                field="learning_rate",
            )


class TimeLimit(keras.callbacks.Callback):
    """Ends a training after its `train_minutes`, which the rate follows."""

    def __init__(self, config, intervals):
        super().__init__()
        self._config = config
        self._intervals = intervals
        self._rate = None

    def on_train_batch_begin(self, batch, logs=None):
        optimizer = self._config.optimizer
        if optimizer.rate_is_constant:
            return  # A callback may change the rate.
        rate = learning_rate_in_time(
            self._config,
            self._intervals.state.step + batch,
            self._intervals.seconds / 60,
        )
        tolerance = _RATE_TOLERANCE * optimizer.learning_rate
        if self._rate is None or abs(rate - self._rate) > tolerance:
            self.model.optimizer.learning_rate = rate
            self._rate = rate

    def on_train_batch_end(self, batch, logs=None):
        minutes = self._config.run.train_minutes
        if self._intervals.seconds >= 60 * minutes:
            _log.info("The %g train_minutes are over.", minutes)
            self.model.stop_training = True


def progress_line(step, metrics, prefix=""):
    """Formats the metrics of a step in at most 80 columns.

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

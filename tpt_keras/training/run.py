"""The loop of a training: intervals between checkpoints."""

import contextlib
import logging
import time

import keras

from tpt_keras.training import backends
from tpt_keras.training.callbacks import FiniteLoss
from tpt_keras.training.callbacks import NonFiniteLossError
from tpt_keras.training.callbacks import Profiler
from tpt_keras.training.callbacks import ProgressLines
from tpt_keras.training.callbacks import TimeLimit
from tpt_keras.training.callbacks import check_weights
from tpt_keras.training.callbacks import progress_line
from tpt_keras.training.optimizers import learning_rate
from tpt_keras.training.optimizers import learning_rate_in_time
from tpt_keras.training.optimizers import learning_rate_schedule
from tpt_keras.training.state import model_folder
from tpt_keras.training.state.logs import MetricsLog

# Rollbacks to one and the same checkpoint before a training gives up.
MAX_ROLLBACKS = 3

_log = logging.getLogger(__name__)


class TrainingRun:
    """The intervals of a training from its state on.

    An interval lies between two checkpoints and is an epoch for Keras: fit,
    measure, evaluate if it is due, write the metrics, keep the best model, and
    save the state last. A training that is killed before that repeats the
    interval, so that nothing is lost or written twice.

    Args:
        trainer: A compiled `Trainer`.
        state: Its `TrainingState`, restored.
        config: The `TrainingConfig`.
        task: The `ProblemTask` or the `TextTask`.
        model_dir: Folder for logs and the best model.
        callbacks: Further Keras callbacks, called after an interval's end.
    """

    def __init__(
        self,
        trainer,
        state,
        config,
        task,
        model_dir,
        callbacks=(),
    ):
        self.trainer = trainer
        self.state = state
        self.config = config
        self.task = task
        self.model_dir = model_dir
        self.callbacks = callbacks
        self._rollbacks = []
        self._start = time.perf_counter() - state.seconds
        self._is_over = self._has_no_time

    def run(self):
        """Trains to the last step.

        A time limit, a lack of improvement or a callback ends a training
        earlier, which is finished then, too.

        Raises:
            NonFiniteLossError: If a loss is not finite.
        """
        steps = self.config.run.train_steps
        if self.step < steps:
            _log.info("Training from step %d to step %d.", self.step, steps)
        while self.step < steps:
            if self._is_over:
                _log.info(
                    "Stopped at step %d: the %g train_minutes are over.",
                    self.step,
                    self.config.run.train_minutes,
                )
                return
            if self.is_stalled:
                _log.info(
                    "Stopped at step %d: no better validation since step %d.",
                    self.step,
                    self.state.best_step,
                )
                return
            try:
                self._fit()
            except NonFiniteLossError as error:
                self._recover(error)
            else:
                ended = self._is_over or self.is_stalled
                if self.trainer.stop_training and not ended:
                    _log.info("Stopped at step %d by a callback.", self.step)
                    return

    @property
    def step(self):
        """Number of steps before the current interval."""
        return self.state.step

    @property
    def seconds(self):
        """Duration of the training so far, in all its runs."""
        return time.perf_counter() - self._start

    @property
    def _has_no_time(self):
        return 0 < self.config.run.train_minutes <= self.seconds / 60

    @property
    def is_evaluation_step(self):
        """`True` if an evaluation follows the last interval."""
        return (
            self.step % self.config.run.steps_per_evaluation == 0
            or self.step == self.config.run.train_steps
            or self._is_over
        )

    @property
    def is_stalled(self):
        """`True` if there were too many steps without improvement."""
        patience = self.config.run.max_steps_without_improvement
        without = self.step - self.state.best_step
        return 0 < patience <= without and self.is_evaluation_step

    def _fit(self):
        """Fits whole intervals, or the rest of one.

        The last interval may be shorter, and the first one after it in a
        prolonged training.
        """
        interval = self.config.run.interval
        epoch, done = divmod(self.step, interval)
        epochs = self.config.run.train_steps // interval
        steps = interval
        if done or epoch == epochs:
            epochs = epoch + 1
            end = min(epochs * interval, self.config.run.train_steps)
            steps = end - self.step
        self._log = MetricsLog(self.model_dir)
        self._log.drop_after(self.step)
        callbacks = [
            FiniteLoss(
                self._describe,
                lambda: self.step,
                self.trainer.placement.steps_behind,
            ),
            keras.callbacks.LambdaCallback(
                on_epoch_begin=lambda epoch, logs: self._begin_interval(),
                on_train_batch_end=self._count_steps,
                on_epoch_end=lambda epoch, logs: self._end_interval(logs),
            ),
            ProgressLines(lambda: self.step),
            *self.callbacks,
        ]
        if self.config.run.train_minutes:
            callbacks.append(
                TimeLimit(self.config, lambda: self.step, lambda: self.seconds)
            )
        with contextlib.ExitStack() as stack:
            if self.config.run.profile_steps:
                profiler = Profiler(
                    self.model_dir / "logs",
                    *self.config.run.profile_steps,
                    lambda: self.step,
                    self.config.run.steps_per_execution,
                )
                callbacks.append(profiler)
                # Keras does not call callbacks after an error.
                stack.callback(profiler.stop)
            stack.enter_context(backends.scope(self.trainer.strategy))
            stack.enter_context(self.task.training.own_errors())
            self.trainer.fit(
                self.trainer.feed(self.task.training, self.state.data_step),
                initial_epoch=epoch,
                epochs=epochs,
                steps_per_epoch=steps,
                shuffle=False,  # the batches are in random order already
                callbacks=callbacks,
                verbose=0,
            )

    def _begin_interval(self):
        self._interval_start = time.perf_counter()

    def _count_steps(self, batch, logs):
        # Fewer than in the interval if a callback ends it.
        self._steps = batch + 1

    def _end_interval(self, logs):
        seconds = time.perf_counter() - self._interval_start
        # Once in an interval, so that all that follows agrees.
        self._is_over = self._has_no_time
        # The last loss was computed before the last update of the weights.
        check_weights(
            self.trainer.trainable_variables,
            self.step + self._steps,
            self._describe,
        )
        self.state.advance(self._steps)
        metrics = dict(logs)
        metrics["learning_rate"] = learning_rate(self.trainer.optimizer)
        for name in ("examples", "tokens"):
            if name in metrics:
                metrics[f"{name}_per_second"] = metrics.pop(name) / seconds
        if self.is_evaluation_step:
            metrics |= self.task.evaluate(
                self.trainer, self.config.run.evaluation_examples
            )
            if self.state.improves(self.task.score(metrics)):
                model_folder.save_best_model(self.trainer.model, self.model_dir)
        self._log_lines(metrics)
        # For the callbacks that follow.
        logs |= {k: v for k, v in metrics.items() if "/" not in k}
        self._log.write({"step": self.step, **metrics})
        self.state.seconds = self.seconds
        self.state.save()
        if self.is_stalled:
            self.trainer.stop_training = True

    def _log_lines(self, metrics):
        _log.info("%s", progress_line(self.step, metrics))
        if "val_loss" in metrics:
            _log.info("%s", progress_line(self.step, metrics, "val_"))

    def _describe(self, failed_step):
        """Describes a failed step."""
        data_step = self.state.data_step + failed_step - 1 - self.step
        rate = learning_rate_schedule(self.config)
        # On JAX, the optimizer has no values within `fit`.
        if self.config.run.train_minutes:
            rate = learning_rate_in_time(
                self.config, failed_step - 1, self.seconds / 60
            )
        elif callable(rate):
            rate = float(rate(failed_step - 1))
        batch = self.task.describe_batch(data_step)
        return f"learning rate {rate:.3g}; its batch: {batch}"

    def _recover(self, error):
        """Rolls back to the last checkpoint and skips the failed batch."""
        if self.config.run.on_nan == "stop":
            raise NonFiniteLossError(
                f"{error} The checkpoint of step {self.step} is kept. Train "
                "with a lower `learning_rate` in another folder, or resume "
                "with `on_nan` set to rollback, which skips the batch.",
                error.step,
            ) from None
        self._rollbacks.append(self.step)
        if self._rollbacks.count(self.step) > MAX_ROLLBACKS:
            raise NonFiniteLossError(
                f"{error} {MAX_ROLLBACKS} rollbacks to step {self.step} did "
                "not help: lower `learning_rate`.",
                error.step,
            ) from None
        _log.info("%s Going back to step %d.", error, self.step)
        failed = self.state.data_step + error.step - self.step
        self.state.restore()
        self.state.data_step = failed
        self.state.save()

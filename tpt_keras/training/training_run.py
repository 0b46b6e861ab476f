import contextlib
import sys
import time

import keras

from tpt_keras.training import backends
from tpt_keras.training import model_folder
from tpt_keras.training.finite_loss import FiniteLoss
from tpt_keras.training.finite_loss import NonFiniteLossError
from tpt_keras.training.finite_loss import check_weights
from tpt_keras.training.metrics_log import MetricsLog
from tpt_keras.training.optimizers import learning_rate
from tpt_keras.training.optimizers import learning_rate_in_time
from tpt_keras.training.optimizers import learning_rate_schedule
from tpt_keras.training.profiler import Profiler
from tpt_keras.training.time_limit import TimeLimit

# Rollbacks to one and the same checkpoint before a training gives up.
MAX_ROLLBACKS = 3


class TrainingRun:
    """What is left of a training, interval after interval.

    An interval is what lies between two checkpoints, and an epoch for Keras:
    fit, measure, evaluate where it is time to, write down, keep the best
    model, and last of all save the state. Killed before that, a training does
    the interval again, and nothing is lost or there twice.

    Args:
        trainer: A compiled `Trainer`.
        state: Its `TrainingState`, restored.
        config: The `TrainingConfig`.
        task: The `ProblemTask` or the `TextTask`.
        model_dir: Folder for logs and the best model.
        callbacks: Further callbacks of Keras, called after an interval's end.
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
        """Trains to the last step, or until nothing gets better any more.

        Or until its time is over, or a callback stops it: then the training
        is finished, too.

        Raises:
            NonFiniteLossError: If the loss is not finite any more.
        """
        while self.step < self.config.run.train_steps:
            if self._is_over:
                print(
                    f"Stopped at step {self.step}: the "
                    f"{self.config.run.train_minutes:g} train_minutes are over."
                )
                return
            if self.is_stalled:
                print(
                    f"Stopped at step {self.step}: nothing better in "
                    f"validation since step {self.state.best_step}."
                )
                return
            try:
                self._fit()
            except NonFiniteLossError as error:
                self._recover(error)
            else:
                ended = self._is_over or self.is_stalled
                if self.trainer.stop_training and not ended:
                    print(f"Stopped at step {self.step} by a callback.")
                    return

    @property
    def step(self):
        """Steps before the current interval."""
        return self.state.step

    @property
    def seconds(self):
        """How long the training took so far, in all its runs."""
        return time.perf_counter() - self._start

    @property
    def _has_no_time(self):
        return 0 < self.config.run.train_minutes <= self.seconds / 60

    @property
    def is_evaluation_step(self):
        """Whether an evaluation follows the last interval."""
        return (
            self.step % self.config.run.steps_per_evaluation == 0
            or self.step == self.config.run.train_steps
            or self._is_over
        )

    @property
    def is_stalled(self):
        """Whether the last evaluation was one without a best too many."""
        patience = self.config.run.max_steps_without_improvement
        without = self.step - self.state.best_step
        return 0 < patience <= without and self.is_evaluation_step

    def _fit(self):
        """Fits whole intervals, or what is left of one.

        One is shorter where the numbers do not divide: the last, and after it
        the first of a training that is prolonged.
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
                # Keras leaves callbacks alone when one of them ends a training.
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
                # A bar on a terminal, elsewhere two lines an interval.
                verbose=1 if sys.stdout.isatty() else 2,
            )

    def _begin_interval(self):
        self._interval_start = time.perf_counter()

    def _count_steps(self, batch, logs):
        # Fewer than the interval has, where a callback ends it.
        self._steps = batch + 1

    def _end_interval(self, logs):
        seconds = time.perf_counter() - self._interval_start
        # Once an interval: what follows has to agree on it.
        self._is_over = self._has_no_time
        # The last step's loss was computed before it could ruin the weights.
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
        # For the bar, and whatever callbacks come after.
        logs |= {k: v for k, v in metrics.items() if "/" not in k}
        self._log.write({"step": self.step, **metrics})
        self.state.seconds = self.seconds
        self.state.save()
        if self.is_stalled:
            self.trainer.stop_training = True

    def _describe(self, failed_step):
        """What there is to say about a step that failed."""
        data_step = self.state.data_step + failed_step - 1 - self.step
        rate = learning_rate_schedule(self.config)
        # The optimizer is not asked: on JAX, it has no values within `fit`.
        if self.config.run.train_minutes:
            rate = learning_rate_in_time(
                self.config, failed_step - 1, self.seconds / 60
            )
        elif callable(rate):
            rate = float(rate(failed_step - 1))
        batch = self.task.describe_batch(data_step)
        return f"learning rate {rate:.3g}; its batch: {batch}"

    def _recover(self, error):
        """Goes back to the last checkpoint, and on behind the failed batch."""
        if self.config.run.on_nan == "stop":
            raise NonFiniteLossError(
                f"{error} The checkpoint of step {self.step} is kept. Train "
                "with a lower --learning_rate in another folder, or go on "
                "with --on_nan=rollback, from the checkpoint and with other "
                "batches.",
                error.step,
            ) from None
        self._rollbacks.append(self.step)
        if self._rollbacks.count(self.step) > MAX_ROLLBACKS:
            raise NonFiniteLossError(
                f"{error} {MAX_ROLLBACKS} rollbacks to step {self.step} did "
                "not help: lower --learning_rate.",
                error.step,
            ) from None
        print(f"{error} Going back to step {self.step}.")
        failed = self.state.data_step + error.step - self.step
        self.state.restore()
        self.state.data_step = failed
        self.state.save()

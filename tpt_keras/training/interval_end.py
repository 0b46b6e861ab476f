import time

import keras

from tpt_keras.training.optimizer import learning_rate


class IntervalEnd(keras.callbacks.Callback):
    """What happens after every interval, which is an epoch for Keras.

    Measures, evaluates where it is time to, writes down, keeps the best model,
    and last of all saves the state: killed before that, a training does the
    interval again, and nothing is lost or there twice.

    Args:
        state: The `TrainingState`.
        config: The `TrainingConfig`.
        options: The `RunOptions`.
        evaluate: Function without arguments that returns a dict of metrics,
            with `val_sequence_accuracy` among them.
        log: The `MetricsLog`.
        save_best: Function without arguments, called when the model is better
            than ever.
    """

    def __init__(self, state, config, options, evaluate, log, save_best):
        super().__init__()
        self._state = state
        self._config = config
        self._options = options
        self._evaluate = evaluate
        self._log = log
        self._save_best = save_best

    def on_epoch_begin(self, epoch, logs=None):
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        seconds = time.perf_counter() - self._start
        self._state.advance(self.params["steps"])
        metrics = dict(logs)
        metrics["learning_rate"] = learning_rate(self.model.optimizer)
        for name in ("examples", "tokens"):
            metrics[f"{name}_per_second"] = metrics.pop(name) / seconds
        step = int(self._state.step)
        if is_evaluation_step(step, self._config):
            metrics |= self._evaluate()
            if self._state.improves(metrics["val_sequence_accuracy"]):
                self._save_best()
        logs |= {k: v for k, v in metrics.items() if "/" not in k}
        self._log.write({"step": step, **metrics})
        self._state.save()
        if is_stalled(self._state, self._config, self._options):
            self.model.stop_training = True


def is_evaluation_step(step, config):
    """Whether an evaluation follows a step."""
    return step % config.steps_per_evaluation == 0 or step == config.train_steps


def is_stalled(state, config, options):
    """Whether the last evaluation was one without improvement too many."""
    patience = options.max_steps_without_improvement
    step, best_step = int(state.step), int(state.best_step)
    return 0 < patience <= step - best_step and is_evaluation_step(step, config)

"""The oracles of keras-tuner, in one process or on several machines."""

import os
import threading

import keras_tuner
from keras_tuner.engine.trial import Trial
from keras_tuner.src.engine import conditions

from tpt_keras.errors import UsageError
from tpt_keras.tuning.search_space import OBJECTIVES

TUNER_ID = "KERASTUNER_TUNER_ID"
ORACLE_IP = "KERASTUNER_ORACLE_IP"
ORACLE_PORT = "KERASTUNER_ORACLE_PORT"
VARIABLES = TUNER_ID, ORACLE_IP, ORACLE_PORT
# Seconds that a worker waits for the chief, and the chief for the workers.
PATIENCE = 60

# Keras-tuner prints the values of every condition that it sends.
conditions.print = lambda *_: None


def process_role() -> str:
    """Returns `"chief"`, `"worker"`, or `"alone"` without the variables."""
    if not any(name in os.environ for name in VARIABLES):
        return "alone"
    for name in VARIABLES:
        if not os.environ.get(name):
            raise UsageError(
                f"{name} is missing. Set all of {', '.join(VARIABLES)}, or "
                "none.",
                field=name,
            )
    # As keras-tuner decides it.
    return "chief" if "chief" in os.environ[TUNER_ID] else "worker"


class _SharedOracle(keras_tuner.Oracle):
    """Survives the end of workers, and knows trials of an earlier chief."""

    @keras_tuner.synchronized
    def create_trial(self, tuner_id):
        trial = super().create_trial(tuner_id)
        if trial.status == "RUNNING":
            return trial
        if self.ongoing_trials:
            # Its worker may be killed; otherwise it has the folder's lock.
            trial = self.ongoing_trials.pop(next(iter(self.ongoing_trials)))
            self.ongoing_trials[tuner_id] = trial
            self.tuner_ids.add(tuner_id)
        elif self.tuner_ids:
            # The chief waits until all have asked; killed workers never do.
            forget = threading.Timer(PATIENCE, self.tuner_ids.clear)
            forget.daemon = True
            forget.start()
        return trial

    # A worker may end a trial that a restarted chief has not proposed yet.
    def get_trial(self, trial_id):
        return self.trials.get(trial_id) or Trial(self.get_space(), trial_id)

    def update_trial(self, trial_id, metrics, step=0):
        if trial_id in self.trials:
            super().update_trial(trial_id, metrics, step)
        return self.get_trial(trial_id)

    def end_trial(self, trial):
        if trial.trial_id in self.trials:
            super().end_trial(trial)


class _RandomOracle(_SharedOracle, keras_tuner.oracles.RandomSearchOracle):
    pass


class _BayesianOracle(
    _SharedOracle, keras_tuner.oracles.BayesianOptimizationOracle
):
    pass


class _GridOracle(_SharedOracle, keras_tuner.oracles.GridSearchOracle):
    def populate_space(self, trial_id):
        response = super().populate_space(trial_id)
        if response["status"] == "RUNNING":
            # Keras-tuner waits for its end: it may declare hyperparameters.
            self._populate_next.append(trial_id)
        return response


def make_oracle(space, training, kind, objective, max_trials):
    """Makes the oracle of keras-tuner that proposes the trials."""
    hyperparameters = keras_tuner.HyperParameters()
    space.propose(hyperparameters, training)
    options = {
        "objective": keras_tuner.Objective(
            objective, OBJECTIVES[objective].__name__
        ),
        "max_trials": max_trials,
        "hyperparameters": hyperparameters,
        # Keras-tuner takes 0 for no seed.
        "seed": training.run.seed + 1,
        # Failed trials do not end a search.
        "max_consecutive_failed_trials": None,
    }
    if kind == "bayesian":
        # The default is three for every hyperparameter: a whole short search.
        return _BayesianOracle(num_initial_points=4, **options)
    return (_GridOracle if kind == "grid" else _RandomOracle)(**options)

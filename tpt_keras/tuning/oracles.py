"""Keras-tuner's oracles, whose searches go on after they were killed.

An oracle proposes trials and keeps what came of them. All state is in its
folder; what is there at any moment is enough to go on with the same trials.
"""

import functools
import json
import warnings

import keras_tuner
import numpy as np
from keras_tuner import oracles
from keras_tuner.engine import trial as trials

from tpt_keras.files import whole_file


class Resumable:
    """Mixin of an oracle: state that is whole, and no trial that is lost.

    Keras-tuner writes its files in place, the trial's before its own: killed
    in between, it takes the trial for one that is running, for ever. It waits
    for ever, too, for a worker that was killed: here its trial is given to
    another one, which goes on from its checkpoint.
    """

    @keras_tuner.synchronized
    def create_trial(self, tuner_id):
        trial = super().create_trial(tuner_id)
        if trial.status == trials.TrialStatus.STOPPED and self.ongoing_trials:
            # A worker that waits can take over from one that is lost.
            self.tuner_ids.add(tuner_id)
            trial.status = trials.TrialStatus.IDLE
        return trial

    @keras_tuner.synchronized
    def free_lost_workers(self, pulses):
        """Puts the trials of workers that are lost into the queue again.

        Args:
            pulses: The `Pulses` of the search's workers.
        """
        for tuner_id in list(filter(pulses.is_lost, self.tuner_ids)):
            print(f"The worker {tuner_id} is lost; others do its trial.")
            self.tuner_ids.remove(tuner_id)
            trial = self.ongoing_trials.pop(tuner_id, None)
            if trial is not None:
                self._retry_queue.append(trial.trial_id)

    def save(self):
        with whole_file(self._get_oracle_fname()) as partial:
            partial.write_text(json.dumps(self.get_state()))

    def _save_trial(self, trial):
        folder = self._get_trial_dir(trial.trial_id)
        with whole_file(f"{folder}/trial.json") as partial:
            partial.write_text(json.dumps(trial.get_state()))

    def reload(self):
        super().reload()
        # In their order, less one that was proposed and not written down: it
        # is what is proposed next.
        self.trials = {
            trial_id: self.trials[trial_id] for trial_id in self.start_order
        }
        # Killed at its end: it has ended.
        self._retry_queue = [
            trial_id
            for trial_id in self._retry_queue
            if self.trials[trial_id].status == trials.TrialStatus.RUNNING
        ]

    @keras_tuner.synchronized
    def end_trial(self, trial):
        # From a worker, they come back in another order.
        trial.hyperparameters = self.trials[trial.trial_id].hyperparameters
        super().end_trial(trial)


class RandomOracle(Resumable, oracles.RandomSearchOracle):
    """Draws every trial at random."""


class HyperbandOracle(Resumable, oracles.HyperbandOracle):
    """Trains many trials for a few steps, and the best of them for more."""


class BayesianOracle(Resumable, oracles.BayesianOptimizationOracle):
    """Proposes trials where a Gaussian process expects much of them."""

    def populate_space(self, trial_id):
        # Its state is not kept, so that it must not depend on the past.
        seed = self.seed + len(self.trials)
        self._random_state = np.random.RandomState(seed)
        with warnings.catch_warnings():
            # Of few trials, that a length scale is at its bound.
            warnings.simplefilter("ignore")
            return super().populate_space(trial_id)


class GridOracle(Resumable, oracles.GridSearchOracle):
    """Goes through all combinations."""

    def reload(self):
        super().reload()
        # The order of the trials so far, which it does not keep: after each
        # comes the next combination that none of them is.
        order = functools.cmp_to_key(
            lambda one, other: self._compare(
                self.trials[one].hyperparameters.values,
                self.trials[other].hyperparameters.values,
            )
        )
        previous = None
        for trial_id in sorted(self.start_order, key=order):
            self._ordered_ids.insert(trial_id, previous)
            previous = trial_id
        self._populate_next = list(self.start_order)


def make_oracle(kind, space, objective, seed, max_trials=None, max_epochs=1):
    """An oracle that proposes trials.

    Args:
        kind: One of `TUNERS`.
        space: `keras_tuner.HyperParameters`, all of them declared.
        objective: A `keras_tuner.Objective`.
        seed: Seed of the proposals.
        max_trials: Most trials; Hyperband knows itself how many it needs.
        max_epochs: Hyperband's budget of a trial that is trained to its end.

    Returns:
        A `keras_tuner.Oracle`.
    """
    common = {
        "objective": objective,
        "hyperparameters": space,
        # Keras-tuner takes 0 for none.
        "seed": seed + 1,
        # A search does not end because trials fail.
        "max_consecutive_failed_trials": None,
    }
    if kind == "hyperband":
        return HyperbandOracle(max_epochs=max_epochs, **common)
    if kind == "bayesian":
        # Its own number, three for every hyperparameter, would be all of a
        # short search.
        common["num_initial_points"] = max(2, max_trials // 3)
    return TUNERS[kind](max_trials=max_trials, **common)


TUNERS = {
    "random": RandomOracle,
    "bayesian": BayesianOracle,
    "hyperband": HyperbandOracle,
    "grid": GridOracle,
}

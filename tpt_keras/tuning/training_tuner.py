import contextlib
import pathlib
import shutil
import time

import keras
import keras_tuner
import tensorflow as tf
from keras_tuner.engine import trial as trials
from tensorboard.plugins.hparams import api as hparams_api

from tpt_keras.files import plain_path
from tpt_keras.files import whole_file
from tpt_keras.files import whole_folder
from tpt_keras.training.finite_loss import NonFiniteLossError
from tpt_keras.training.metrics_log import run_and_tag
from tpt_keras.training.train import train
from tpt_keras.tuning.objectives import best_of
from tpt_keras.tuning.roles import role
from tpt_keras.tuning.search_folder import FAILURE_FILE
from tpt_keras.tuning.search_folder import execution_folder
from tpt_keras.tuning.search_folder import trial_folder
from tpt_keras.tuning.worker_pulse import Pulses
from tpt_keras.tuning.worker_pulse import pulse
from tpt_keras.tuning.worker_pulse import repeated

# How long a worker without a trial waits before it asks again.
_IDLE_SECONDS = 1.0
# What tells that a trial, and not the search, has failed.
_FAILURES = (
    NonFiniteLossError,
    keras_tuner.errors.FailedTrialError,
    tf.errors.ResourceExhaustedError,
    MemoryError,
)


class TrainingTuner(keras_tuner.Tuner):
    """Runs an oracle's trials as trainings like any other.

    Each execution of a trial is a training of `train`, in a folder of its own:
    killed, it goes on from its own checkpoint.

    Args:
        oracle: A `keras_tuner.Oracle` of `make_oracle`.
        space: The `SearchSpace`.
        training: The `TrainingConfig` of everything that is not searched. An
            execution's seed is its seed and the execution's number.
        folder: Folder of the search.
        executions_per_trial: How often each trial is trained.
        strategy: A `tf.distribute` strategy. Defaults to none.
    """

    def __init__(
        self,
        oracle,
        space,
        training,
        folder,
        executions_per_trial=1,
        strategy=None,
    ):
        self.space = space
        self.training = training
        self.folder = pathlib.Path(folder)
        self._asked = False
        # Where it looks for trials, by patterns.
        place = plain_path(folder)
        super().__init__(
            oracle,
            distribution_strategy=strategy,
            directory=str(place.parent),
            project_name=place.name,
            executions_per_trial=executions_per_trial,
        )

    # All state is the oracle's, whoever holds that: one process or the chief.
    def _get_tuner_fname(self):
        return str(pathlib.Path(self.project_dir) / "oracle.json")

    def save(self):
        if role() != "worker":
            self.oracle.save()

    def reload(self):
        if role() != "worker":
            self.oracle.reload()

    def search(self):
        """Runs trials until there is none left, or serves them to workers."""
        with self._company():
            super().search()

    def _company(self):
        """What goes on beside the search, where it has several processes."""
        if role() == "worker":
            return pulse(self.folder, self.tuner_id)
        if role() == "chief":
            pulses = Pulses(self.folder)
            return repeated(lambda: self.oracle.free_lost_workers(pulses))
        return contextlib.nullcontext()

    def pre_create_trial(self):
        # Asked again, where there was no trial: the chief waits for others.
        if self._asked:
            time.sleep(_IDLE_SECONDS)
        self._asked = True

    def on_trial_begin(self, trial):
        self._asked = False

    def _try_run_and_update_trial(self, trial, *args, **kwargs):
        # Keras-tuner's own takes any error for the trial's, so that a search
        # without data would be one of failures.
        try:
            self._run_and_update_trial(trial)
            trial.status = trials.TrialStatus.COMPLETED
        except keras_tuner.errors.FailedTrialError as error:
            trial.status = trials.TrialStatus.FAILED
            trial.message = str(error)

    def run_trial(self, trial):
        """Trains a trial as often as it is to be executed.

        Args:
            trial: A `keras_tuner.engine.trial.Trial`.

        Returns:
            List of dicts, the metrics of each execution.

        Raises:
            FailedTrialError: If there is not enough memory, or a loss is not
                finite.
        """
        try:
            return [
                self._execute(trial, execution)
                for execution in range(self.executions_per_trial)
            ]
        except _FAILURES as error:
            # In a line, as the trial of a worker comes without its message.
            reason = " ".join(str(error).split()) or type(error).__name__
            path = trial_folder(self.folder, trial.trial_id) / FAILURE_FILE
            with whole_file(path) as partial:
                partial.write_text(f"{reason}\n")
            raise keras_tuner.errors.FailedTrialError(reason) from None

    def _execute(self, trial, execution):
        """The objective's value of one execution."""
        keras.backend.clear_session()
        values = trial.hyperparameters.values
        training = self.training.replace(
            seed=self.training.run.seed + execution
        )
        if "tuner/epochs" in values:
            steps = values["tuner/epochs"] * training.run.steps_per_evaluation
            training = training.replace(train_steps=steps)
        model_config, config = self.space.propose(
            trial.hyperparameters, training
        )
        folder = execution_folder(self.folder, trial.trial_id, execution)
        if (
            "tuner/trial_id" in values
            and config.optimizer.schedule == "constant"
        ):
            _prolong(
                execution_folder(
                    self.folder, values["tuner/trial_id"], execution
                ),
                folder,
            )
        folder.mkdir(parents=True, exist_ok=True)
        self._write_hparams(folder / "logs", trial)
        print(f"Trial {trial.trial_id}, execution {execution}: {folder}")
        result = train(
            model_config,
            config,
            folder,
            preset=values["variant"],
            strategy=self.distribution_strategy,
        )
        objective = self.oracle.objective.name
        best = best_of(result.history, objective)
        if best is None:
            raise keras_tuner.errors.FailedTrialError(
                f"{objective} was never finite."
            )
        return {objective: best[objective]}

    def _write_hparams(self, logs, trial):
        """What TensorBoard's HParams tab shows of an execution."""
        if any(logs.glob("events.out.*")):
            return  # it goes on
        objective = self.oracle.objective
        run, tag = run_and_tag(objective.name)
        values = trial.hyperparameters.values
        with tf.summary.create_file_writer(str(logs)).as_default(step=0):
            hparams_api.hparams_config(
                hparams=[hparams_api.HParam(name) for name in values],
                metrics=[
                    hparams_api.Metric(
                        tag, group=run, display_name=objective.name
                    )
                ],
            )
            hparams_api.hparams(values, trial_id=trial.trial_id)


def _prolong(earlier, folder):
    """Copies a training of fewer steps, where that is not done yet."""
    if folder.exists():
        return
    with whole_folder(folder) as partial:
        logs = shutil.ignore_patterns("logs")
        shutil.copytree(earlier, partial, ignore=logs)

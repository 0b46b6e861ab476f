"""A search with keras-tuner, from its space to the report.

Every trial is a training of `train` like any other, with its own checkpoints,
and records its outcome in its folder. Keras-tuner's own state is not kept: a
search that is started again proposes the same trials in the same order, and
those that are recorded end at once.
"""

import contextlib
import dataclasses
import logging
import os
import pathlib
import shutil
import tempfile
import time
import warnings

import keras
import keras_tuner
from keras_tuner import oracles

from tpt_keras.data_generators import training_task
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.files import folder_lock
from tpt_keras.files import whole_folder
from tpt_keras.training.callbacks import NonFiniteLossError
from tpt_keras.training.config import MAY_CHANGE
from tpt_keras.training.state.logs import EventFile
from tpt_keras.training.state.logs import run_and_tag
from tpt_keras.training.train import make_trainer
from tpt_keras.training.train import train
from tpt_keras.tuning.report import write_report
from tpt_keras.tuning.search_space import SEARCHED
from tpt_keras.tuning.trials import OBJECTIVES
from tpt_keras.tuning.trials import best_of
from tpt_keras.tuning.trials import ensure_search
from tpt_keras.tuning.trials import execution_folder
from tpt_keras.tuning.trials import own_values
from tpt_keras.tuning.trials import read_trial
from tpt_keras.tuning.trials import trial_folder
from tpt_keras.tuning.trials import write_trial

TUNERS = ("random", "bayesian", "hyperband", "grid")
# Fields of a training that no search has.
_NOT_OF_A_SEARCH = ("segment_length", "train_minutes")
# Keras-tuner's variables of a search of several processes.
_VARIABLES = (
    "KERASTUNER_TUNER_ID",
    "KERASTUNER_ORACLE_IP",
    "KERASTUNER_ORACLE_PORT",
)
_IDLE_SECONDS = 1.0

_log = logging.getLogger(__name__)


def tune(
    space,
    training,
    folder,
    tuner="random",
    objective="val_sequence_accuracy",
    max_trials=10,
    executions_per_trial=1,
    strategy=None,
):
    """Searches for the best model, or resumes a search.

    With keras-tuner's variables in the environment (`KERASTUNER_TUNER_ID`,
    `KERASTUNER_ORACLE_IP`, `KERASTUNER_ORACLE_PORT`), this process is the
    chief of a search of several processes, or one of its workers.

    Args:
        space: A `SearchSpace`.
        training: A `TrainingConfig` of everything that is not searched. An
            execution's seed is its seed plus the execution's number.
        folder: Folder for all results.
        tuner: `"random"`, `"bayesian"`, `"hyperband"` or `"grid"`.
        objective: One of `OBJECTIVES`.
        max_trials: Most trials. Hyperband ignores it: the training's steps
            decide.
        executions_per_trial: Trainings of each trial, whose mean is its score.
        strategy: The strategy of each training, see `make_strategy`.

    Returns:
        List of dicts, see `search_results`; empty in a worker.

    Raises:
        UsageError: If the folder belongs to another search, if another process
            searches in it, or if the data is missing.

    Example:

    ```python
    trials = tune(
        SearchSpace(variants=["transformer", "tp_transformer"]),
        TrainingConfig.from_flat(
            modules=["numbers__place_value"], train_steps=500
        ),
        "searches/place_value",
    )
    print(max(trials, key=lambda trial: trial["score"]))
    ```
    """
    check_choice("tuner", tuner, TUNERS)
    check_choice("objective", objective, OBJECTIVES)
    check_positive_integer("max_trials", max_trials)
    check_positive_integer("executions_per_trial", executions_per_trial)
    _check_epochs(tuner, training)
    is_worker = _is_worker()
    folder = pathlib.Path(folder)
    search = {
        "tuner": tuner,
        "objective": objective,
        "executions_per_trial": executions_per_trial,
        "space": dataclasses.asdict(space),
        "training": {
            name: value
            for name, value in training.flat().items()
            if name not in {*SEARCHED, *_NOT_OF_A_SEARCH, *MAY_CHANGE}
        },
        "data": training_task(training).fingerprints,
    }
    hyperparameters = keras_tuner.HyperParameters()
    space.propose(hyperparameters, training)
    oracle = make_oracle(
        tuner,
        hyperparameters,
        keras_tuner.Objective(objective, OBJECTIVES[objective]),
        training.run.seed,
        max_trials,
        training.run.train_steps // training.run.steps_per_evaluation,
    )
    with contextlib.ExitStack() as stack:
        if not is_worker:
            stack.enter_context(folder_lock(folder, "searches"))
        ensure_search(folder, search)
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        TrainingTuner(
            oracle,
            space,
            training,
            folder,
            executions_per_trial,
            strategy,
            directory=scratch,
        ).search()
        return [] if is_worker else write_report(folder)


def make_oracle(kind, space, objective, seed, max_trials=None, max_epochs=1):
    """One of keras-tuner's oracles, which propose trials.

    Args:
        kind: One of `TUNERS`.
        space: `keras_tuner.HyperParameters`, all of them declared.
        objective: A `keras_tuner.Objective`.
        seed: Seed of the proposals.
        max_trials: Most trials; not used by Hyperband.
        max_epochs: Most epochs of a trial; used by Hyperband alone.

    Returns:
        A `keras_tuner.Oracle`.
    """
    common = {
        "objective": objective,
        "hyperparameters": space,
        # Keras-tuner takes 0 for no seed.
        "seed": seed + 1,
        # Failed trials do not end a search.
        "max_consecutive_failed_trials": None,
    }
    if kind == "hyperband":
        return oracles.HyperbandOracle(max_epochs=max_epochs, **common)
    common["max_trials"] = max_trials
    if kind == "bayesian":
        # The default, three for every hyperparameter, would be all trials of
        # a short search.
        return oracles.BayesianOptimizationOracle(
            num_initial_points=max(2, max_trials // 3), **common
        )
    if kind == "grid":
        return oracles.GridSearchOracle(**common)
    return oracles.RandomSearchOracle(**common)


class TrainingTuner(keras_tuner.Tuner):
    """Runs the trials of an oracle as trainings of `train`.

    Args:
        oracle: A `keras_tuner.Oracle`.
        space: The `SearchSpace`.
        training: The `TrainingConfig` of everything that is not searched.
        folder: Folder of the search.
        executions_per_trial: Trainings of each trial.
        strategy: The strategy of each training. Defaults to none.
        **kwargs: See `keras_tuner.Tuner`.
    """

    def __init__(
        self,
        oracle,
        space,
        training,
        folder,
        executions_per_trial=1,
        strategy=None,
        **kwargs,
    ):
        self.space = space
        self.training = training
        self.folder = pathlib.Path(folder)
        self.strategy = strategy
        # A worker gets the hyperparameters of a trial in another order.
        declared = [hp.name for hp in oracle.get_space().space]
        self._names = [*dict.fromkeys(declared), "tuner/epochs"]
        self._is_idle = False
        super().__init__(
            oracle, executions_per_trial=executions_per_trial, **kwargs
        )

    def search(self):
        """Runs trials until none is left, or serves them to workers.

        Raises:
            Exception: Any error of a training that is not a trial's own.
        """
        with warnings.catch_warnings():
            # A Gaussian process of few trials warns of its length scale.
            warnings.filterwarnings("ignore", module="sklearn")
            try:
                super().search(verbose=0)
            except keras_tuner.errors.FatalError as error:
                raise (error.__cause__ or error) from None

    def pre_create_trial(self):
        # A worker without a trial asks again at once.
        if self._is_idle:
            time.sleep(_IDLE_SECONDS)
        self._is_idle = True

    def on_trial_begin(self, trial):
        self._is_idle = False

    def run_trial(self, trial, **kwargs):
        """Trains a trial, unless its outcome is recorded.

        Args:
            trial: A trial of keras-tuner.
            **kwargs: Ignored.

        Returns:
            List of dicts, the objective's value in each execution.

        Raises:
            FailedTrialError: If there is not enough memory, or a loss is not
                finite.
            FatalError: If there is any other error, which is its cause.
        """
        trial_dir = trial_folder(self.folder, trial.hyperparameters.values)
        record = read_trial(trial_dir)
        if record is None or record["status"] == "running":
            record = self._new_record(trial)
            write_trial(trial_dir, record)
            try:
                record |= self._outcome(trial)
            except Exception as error:
                # Keras-tuner would take any other error for a failed trial.
                raise keras_tuner.errors.FatalError(str(error)) from error
            write_trial(trial_dir, record)
        if record["status"] == "failed":
            raise keras_tuner.errors.FailedTrialError(record["reason"])
        objective = self.oracle.objective.name
        return [{objective: score} for score in record["scores"]]

    def _new_record(self, trial):
        values = trial.hyperparameters.values
        ordered = {name: values[name] for name in self._names if name in values}
        return {
            "trial": trial.trial_id,
            "hyperparameters": own_values(ordered),
            "status": "running",
            "scores": [],
            "reason": "",
        }

    def _outcome(self, trial):
        try:
            scores = [
                self._execute(trial, execution)
                for execution in range(self.executions_per_trial)
            ]
        except Exception as error:
            if not _is_failure_of_a_trial(error):
                raise
            reason = " ".join(str(error).split()) or type(error).__name__
            _log.info("Trial %s failed: %s", trial.trial_id, reason)
            return {"status": "failed", "reason": reason}
        return {"status": "completed", "scores": scores}

    def _execute(self, trial, execution):
        """Trains once and returns the objective's best value."""
        keras.backend.clear_session()
        values = trial.hyperparameters.values
        changes = {"seed": self.training.run.seed + execution}
        if "tuner/epochs" in values:
            steps = self.training.run.steps_per_evaluation
            changes["train_steps"] = values["tuner/epochs"] * steps
        model_config, config = self.space.propose(
            trial.hyperparameters, self.training.replace(**changes)
        )
        trial_dir = trial_folder(self.folder, values)
        model_dir = execution_folder(trial_dir, execution)
        if (
            "tuner/trial_id" in values
            and config.optimizer.schedule == "constant"
        ):
            self._prolong(values["tuner/trial_id"], execution, model_dir)
        self._write_hparams(model_dir / "logs", trial)
        _log.info(
            "Trial %s, execution %d: %s", trial.trial_id, execution, model_dir
        )
        result = train(
            model_config,
            config,
            model_dir,
            preset=values["variant"],
            strategy=self.strategy,
        )
        objective = self.oracle.objective.name
        best = best_of(result.history, objective)
        if best is None:
            raise keras_tuner.errors.FailedTrialError(
                f"{objective} was never finite."
            )
        return best[objective]

    def _prolong(self, earlier_id, execution, model_dir):
        """Copies the training of fewer steps, unless that is done already."""
        if model_dir.exists():
            return
        values = self.oracle.get_trial(earlier_id).hyperparameters.values
        earlier = trial_folder(self.folder, values)
        with whole_folder(model_dir) as partial:
            shutil.copytree(
                execution_folder(earlier, execution),
                partial,
                ignore=shutil.ignore_patterns("logs"),
            )

    def _write_hparams(self, logs, trial):
        """Writes the row of TensorBoard's HParams tab, once."""
        from tensorboard.plugins.hparams import api

        if any(logs.glob("events.out.*")):
            return
        run, tag = run_and_tag(self.oracle.objective.name)
        values = own_values(trial.hyperparameters.values)
        metric = api.Metric(
            tag, group=run, display_name=self.oracle.objective.name
        )
        file = EventFile(logs)
        hparams = list(map(api.HParam, values))
        file.write_summary(api.hparams_config_pb(hparams, [metric]))
        file.write_summary(api.hparams_pb(values, trial_id=trial.trial_id))


class TransformerHyperModel(keras_tuner.HyperModel):
    """The variants as a model that any tuner of keras-tuner searches.

    Args:
        space: A `SearchSpace`.
        training: A `TrainingConfig` of everything that is not searched.

    Example:

    ```python
    tuner = keras_tuner.RandomSearch(
        TransformerHyperModel(SearchSpace(), training),
        objective=keras_tuner.Objective("val_sequence_accuracy", "max"),
    )
    tuner.search(batches.dataset(), steps_per_epoch=100, epochs=5, ...)
    ```
    """

    def __init__(self, space, training):
        super().__init__(name="transformer")
        self.space = space
        self.training = training

    def build(self, hp):
        """Builds a compiled `Trainer`.

        Args:
            hp: `keras_tuner.HyperParameters`.
        """
        return make_trainer(*self.space.propose(hp, self.training))


def _is_worker():
    """Returns `True` if this process gets its trials from a chief."""
    missing = [name for name in _VARIABLES if name not in os.environ]
    if len(missing) == len(_VARIABLES):
        return False
    if missing:
        raise UsageError(
            "A search of several processes needs the environment variables "
            f"{', '.join(_VARIABLES)}. Missing: {', '.join(missing)}.",
            field=missing[0],
        )
    # Keras-tuner's own test.
    return "chief" not in os.environ["KERASTUNER_TUNER_ID"]


def _is_failure_of_a_trial(error):
    """Returns `True` for a loss that is not finite and for lack of memory."""
    if isinstance(
        error,
        (NonFiniteLossError, keras_tuner.errors.FailedTrialError, MemoryError),
    ):
        return True
    # TensorFlow's class, and JAX's message.
    name = f"{type(error).__name__} {error}"
    return "ResourceExhausted" in name or "RESOURCE_EXHAUSTED" in name


def _check_epochs(tuner, training):
    """Refuses steps that are no whole number of Hyperband's epochs."""
    steps = training.run.steps_per_evaluation
    if tuner == "hyperband" and training.run.train_steps % steps:
        raise UsageError(
            "Hyperband trains from evaluation to evaluation: `train_steps`, "
            f"{training.run.train_steps}, must be a multiple of "
            f"`steps_per_evaluation`, {steps}.",
            field="train_steps",
        )

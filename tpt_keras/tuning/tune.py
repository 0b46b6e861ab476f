"""A search with keras-tuner: its trials are trainings of `train`.

config.json                     the resolved search
trials/VARIANT-HASH-SEED/       a trial's training, a model's folder
report.{md,json}                the results
best.cfg                        the best trial, a flagfile

Keras-tuner's own state is not kept: a search that is started again proposes the
same trials in the same order, and finds finished trainings in their folders,
whose names are hashes of the hyperparameters.
"""

import dataclasses
import hashlib
import json
import logging
import pathlib
import tempfile
import warnings
from typing import Any

import keras
import keras_tuner

from tpt_keras.data_generators import training_task
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.errors import require
from tpt_keras.files import write_text
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.intervals import NonFiniteLossError
from tpt_keras.training.state.logs import best_row
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.state.model_folder import write_config
from tpt_keras.training.train import make_trainer
from tpt_keras.training.train import train
from tpt_keras.training.trainer import Trainer
from tpt_keras.tuning.report import write_report
from tpt_keras.tuning.search_space import OBJECTIVES
from tpt_keras.tuning.search_space import TUNERS
from tpt_keras.tuning.search_space import SearchSpace
from tpt_keras.typing import StrPath

# One line in the folder of a training that failed; it is not repeated.
FAILURE_FILE = "failure.txt"

_log = logging.getLogger(__name__)


def tune(
    space: SearchSpace,
    training: TrainingConfig,
    folder: StrPath,
    tuner: str = "random",
    objective: str = "val_sequence_accuracy",
    max_trials: int = 10,
    executions_per_trial: int = 1,
    strategy: Any = None,
) -> list[dict[str, Any]]:
    """Searches for the best model, or resumes a search.

    Args:
        space: A `SearchSpace`.
        training: A `TrainingConfig` of everything that is not searched. The
            executions' seeds follow its seed.
        folder: Folder for all results.
        tuner: `"random"`, `"bayesian"` or `"grid"`.
        objective: One of `OBJECTIVES`.
        max_trials: Most trials.
        executions_per_trial: Trainings of each trial, whose mean is its score.
        strategy: The strategy of each training, see `make_strategy`.

    Returns:
        List of dicts, one of each trial: its number `trial`, `status`
        (`"completed"` or `"failed"`), `hyperparameters`, the model's
        `hidden_dim`, `intermediate_dim` and `weights`, the `scores` of the
        executions and their mean `score`, the `best_step` and the `folder` of
        the first execution, and the `reason` of a failure.

    Raises:
        UsageError: If the folder belongs to another search, if another process
            searches in it, or if the data is missing.
        MissingDependencyError: If the Bayesian tuner's scikit-learn is missing.

    Example:

    ```python
    trials = tune(
        SearchSpace(variants=["transformer", "tp_transformer"]),
        TrainingConfig.from_flat(
            modules=["numbers__place_value"], train_steps=500
        ),
        "searches/place_value",
    )
    ```
    """
    check_choice("tuner", tuner, TUNERS)
    if tuner == "bayesian":
        require("sklearn", "analysis")
    check_choice("objective", objective, OBJECTIVES)
    check_positive_integer("max_trials", max_trials)
    check_positive_integer("executions_per_trial", executions_per_trial)
    folder = pathlib.Path(folder)
    task = training_task(training)
    of_space = dataclasses.asdict(space)
    # The data decide it.
    del of_space["vocabulary"]
    search = {
        "tuner": tuner,
        "objective": objective,
        "executions_per_trial": executions_per_trial,
        "space": of_space,
        "training": training.to_stored(),
        "data": task.fingerprints,
    }
    preset = space.preset(space.variants[0])
    adapted = task.adapted(preset)
    if adapted != preset:
        space = dataclasses.replace(space, vocabulary=adapted.vocabulary)
    write_config(folder, search)
    oracle = make_oracle(space, training, tuner, objective, max_trials)
    with tempfile.TemporaryDirectory() as scratch:
        searcher = TrainingTuner(
            oracle,
            space,
            training,
            folder,
            strategy,
            executions_per_trial=executions_per_trial,
            directory=scratch,
        )
        searcher.search()
    better = OBJECTIVES[objective]
    write_report(folder, search, searcher.results, reverse=better is max)
    return searcher.results


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
        return keras_tuner.oracles.BayesianOptimizationOracle(
            num_initial_points=4, **options
        )
    if kind == "grid":
        return keras_tuner.oracles.GridSearchOracle(**options)
    return keras_tuner.oracles.RandomSearchOracle(**options)


class TrainingTuner(keras_tuner.Tuner):
    """Runs the trials of an oracle as trainings of `train`.

    Attributes:
        results: The trials so far, as `tune` returns them.
    """

    def __init__(self, oracle, space, training, folder, strategy, **kwargs):
        self.space = space
        self.training = training
        self.folder = folder
        self.strategy = strategy
        self.results = []
        super().__init__(oracle, **kwargs)

    def search(self):
        """Runs trials until none is left, or an error is not a trial's."""
        with warnings.catch_warnings():
            # A Gaussian process of few trials warns of its length scale.
            warnings.filterwarnings("ignore", module="sklearn")
            warnings.filterwarnings("ignore", "All-NaN")
            try:
                super().search(verbose=0)
            except keras_tuner.errors.FatalError as error:
                raise (error.__cause__ or error) from None

    def run_trial(self, trial, **kwargs):
        """Trains a trial and returns the objective's value per execution."""
        objective = self.oracle.objective.name
        result = self._new_result(trial)
        self.results.append(result)
        try:
            rows = [
                self._train(trial, execution, result)
                for execution in range(self.executions_per_trial)
            ]
        except keras_tuner.errors.FailedTrialError as error:
            result |= {"status": "failed", "reason": str(error)}
            _log.info("Trial %s failed: %s", trial.trial_id, error)
            # Keras-tuner takes it for a failure, and prints no traceback.
            return [{objective: float("nan")}]
        except Exception as error:
            # Keras-tuner would take any other error for a failed trial.
            raise keras_tuner.errors.FatalError(str(error)) from error
        scores = [row[objective] for row in rows]
        result |= {
            "status": "completed",
            "scores": scores,
            "score": sum(scores) / len(scores),
            "best_step": rows[0]["step"],
        }
        return [{objective: score} for score in scores]

    def _new_result(self, trial):
        hyperparameters = trial.hyperparameters
        model, _ = self.space.propose(hyperparameters, self.training)
        model_dir = self._model_dir(hyperparameters.values, 0)
        return {
            "trial": trial.trial_id,
            "status": "running",
            "hyperparameters": dict(hyperparameters.values),
            "hidden_dim": model.hidden_dim,
            # An LSTM has none.
            "intermediate_dim": getattr(model, "intermediate_dim", None),
            "weights": None,
            "scores": [],
            "score": None,
            "best_step": None,
            "folder": model_dir.relative_to(self.folder).as_posix(),
            "reason": "",
        }

    def _model_dir(self, values, execution):
        content = json.dumps(sorted(values.items())).encode()
        number = hashlib.sha256(content).hexdigest()[:8]
        seed = self.training.run.seed + execution
        return self.folder / "trials" / f"{values['variant']}-{number}-{seed}"

    def _train(self, trial, execution, result):
        """Trains once and returns the row of the best value."""
        values = trial.hyperparameters.values
        model_config, config = self.space.propose(
            trial.hyperparameters,
            self.training.replace(seed=self.training.run.seed + execution),
        )
        model_dir = self._model_dir(values, execution)
        failure = model_dir / FAILURE_FILE
        if failure.exists():
            raise keras_tuner.errors.FailedTrialError(
                failure.read_text(encoding="utf-8")
            )
        _log.info("Trial %s: %s", trial.trial_id, model_dir)
        keras.utils.clear_session(free_memory=True)
        try:
            model = train(
                model_config,
                config,
                model_dir,
                preset=values["variant"],
                strategy=self.strategy,
            )
        except Exception as error:
            if not _is_failure_of_a_trial(error):
                raise
            reason = " ".join(str(error).split()) or type(error).__name__
            write_text(failure, reason)
            raise keras_tuner.errors.FailedTrialError(reason) from error
        result["weights"] = model.count_params()
        objective = self.oracle.objective.name
        row = best_row(
            read_metrics(model_dir), objective, OBJECTIVES[objective]
        )
        if row is None:
            raise keras_tuner.errors.FailedTrialError(
                f"{objective} was never finite."
            )
        return row


def _is_failure_of_a_trial(error):
    # TensorFlow's class, JAX's message, PyTorch's class and message.
    signs = ["ResourceExhausted", "RESOURCE_EXHAUSTED"]
    signs += ["OutOfMemoryError", "can't allocate memory"]
    name = f"{type(error).__name__} {error}"
    return isinstance(error, (NonFiniteLossError, MemoryError)) or any(
        sign in name for sign in signs
    )


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

    def __init__(self, space: SearchSpace, training: TrainingConfig) -> None:
        super().__init__(name="transformer")
        self.space = space
        self.training = training

    def build(self, hp: keras_tuner.HyperParameters) -> Trainer:
        """Builds a compiled `Trainer`."""
        return make_trainer(*self.space.propose(hp, self.training))

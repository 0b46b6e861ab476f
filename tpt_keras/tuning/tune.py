"""A search with keras-tuner: its trials are trainings of `train`.

config.json                     the resolved search
trials/VARIANT-HASH-SEED/       a trial's training, a model's folder
report.{md,json}                the results
best.cfg                        the best trial, a flagfile

Keras-tuner's own state is not kept: a search that is started again proposes the
same trials in the same order, and finds finished trainings in their folders,
whose names are hashes of the hyperparameters.

On several machines keras-tuner's chief proposes the trials. Its workers train
them in the same folder, where the chief reads the results.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
import pathlib
import tempfile
import warnings
from typing import Any

import grpc
import keras
import keras_tuner
from keras_tuner.src.distribute import oracle_client

from tpt_keras.data_generators import training_task
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.errors import require
from tpt_keras.files import folder_lock
from tpt_keras.files import write_text
from tpt_keras.models import count_weights
from tpt_keras.models.stored import MODEL_FILE
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.intervals import NonFiniteLossError
from tpt_keras.training.state.logs import best_row
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.state.model_folder import CHECKPOINTS
from tpt_keras.training.state.model_folder import check_config
from tpt_keras.training.state.model_folder import write_config
from tpt_keras.training.train import make_trainer
from tpt_keras.training.train import train
from tpt_keras.training.trainer import Trainer
from tpt_keras.tuning import oracles
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

    With keras-tuner's variables it is a worker, or the chief of workers.

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
        the first execution, and the `reason` of a failure. A worker has none.

    Raises:
        UsageError: If the folder belongs to another search, if another process
            searches in it, or if the data, a variable or the chief is missing.
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
    role = oracles.process_role()
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
    # Of gRPC's client, and of its server at another machine's address.
    unreachable = {"worker": grpc.RpcError, "chief": RuntimeError}
    with contextlib.ExitStack() as stack:
        if role != "worker":
            stack.enter_context(folder_lock(folder, "searches"))
            write_config(folder, search)
        searcher = TrainingTuner(
            oracles.make_oracle(space, training, tuner, objective, max_trials),
            space,
            training,
            folder,
            strategy,
            executions_per_trial=executions_per_trial,
            directory=stack.enter_context(tempfile.TemporaryDirectory()),
        )
        try:
            if role == "worker":
                oracle_client.TIMEOUT = oracles.PATIENCE  # it is an hour
                # The chief answers when it has written its configuration.
                searcher.oracle.get_space()
                check_config(folder, search)
            if role != "chief" or searcher.end_finished_trials():
                searcher.search()
        except unreachable.get(role, ()) as error:
            raise UsageError(
                f"No chief is at the address of {oracles.ORACLE_IP} and "
                f"{oracles.ORACLE_PORT}. Start the same command there, with "
                f"{oracles.TUNER_ID}=chief, or set them to its address.",
                field=oracles.ORACLE_IP,
            ) from error
        if role == "worker":
            _log.info("No trial is left. The chief writes the report.")
            return []
        results = list(map(searcher.result, searcher.oracle.trials.values()))
        write_report(folder, search, results)
    return results


class TrainingTuner(keras_tuner.Tuner):
    """Runs the trials of an oracle as trainings of `train`."""

    def __init__(self, oracle, space, training, folder, strategy, **kwargs):
        self.space = space
        self.training = training
        self.folder = folder
        self.strategy = strategy
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

    def end_finished_trials(self):
        """Ends trials of an earlier chief; returns `True` if some are left."""
        self.oracle.verbose = 0
        trial = self.oracle.create_trial(self.tuner_id)
        while trial.status == "RUNNING":
            outcome = self._outcome(trial)
            if outcome["status"] == "running":
                # A worker takes it over, as from a killed one.
                self.oracle.tuner_ids.clear()
                return True
            self.oracle.update_trial(trial.trial_id, self._metrics(outcome))
            trial.status = "COMPLETED"
            self.oracle.end_trial(trial)
            trial = self.oracle.create_trial(self.tuner_id)
        return False

    def run_trial(self, trial, **kwargs):
        """Trains a trial and returns the mean of the objective's values."""
        try:
            for execution, model_dir in enumerate(self._model_dirs(trial)):
                self._train(trial, execution, model_dir)
                outcome = self._outcome(trial)
                if outcome["status"] == "failed":
                    reason = outcome["reason"]
                    _log.info("Trial %s failed: %s", trial.trial_id, reason)
                    break
        except Exception as error:
            # Keras-tuner would take any other error for a failed trial.
            raise keras_tuner.errors.FatalError(str(error)) from error
        return self._metrics(outcome)

    def _metrics(self, outcome):
        # Keras-tuner takes NaN for a failure, and prints no traceback.
        score = outcome.get("score", float("nan"))
        return {self.oracle.objective.name: score}

    def result(self, trial):
        """Returns what `tune` returns of a trial."""
        model, _ = self.space.propose(trial.hyperparameters, self.training)
        [model_dir, *_] = self._model_dirs(trial)
        values = trial.hyperparameters.values
        # A worker's have lost their order.
        names = [hp.name for hp in self.oracle.hyperparameters.space]
        return {
            "trial": trial.trial_id,
            "hyperparameters": {n: values[n] for n in names if n in values},
            "hidden_dim": model.hidden_dim,
            "intermediate_dim": model.intermediate_dim,
            "weights": count_weights(model),
            "scores": [],
            "score": None,
            "best_step": None,
            "folder": model_dir.relative_to(self.folder).as_posix(),
            "reason": "",
            **self._outcome(trial),
        }

    def _outcome(self, trial):
        """A trial's status, and its scores or the reason of its failure."""
        objective = self.oracle.objective.name
        rows = []
        for model_dir in self._model_dirs(trial):
            failure = model_dir / FAILURE_FILE
            if failure.exists():
                reason = failure.read_text(encoding="utf-8")
                return {"status": "failed", "reason": reason}
            if not (model_dir / MODEL_FILE).exists():
                return {"status": "running", "reason": "No model is there."}
            row = best_row(
                read_metrics(model_dir), objective, OBJECTIVES[objective]
            )
            if row is None:
                reason = f"{objective} was never finite."
                return {"status": "failed", "reason": reason}
            rows.append(row)
        scores = [row[objective] for row in rows]
        return {
            "status": "completed",
            "scores": scores,
            "score": sum(scores) / len(scores),
            "best_step": rows[0]["step"],
        }

    def _model_dirs(self, trial):
        values = trial.hyperparameters.values
        content = json.dumps(sorted(values.items())).encode()
        number = hashlib.sha256(content).hexdigest()[:8]
        seed = self.training.run.seed
        return [
            self.folder / "trials" / f"{values['variant']}-{number}-{each}"
            for each in range(seed, seed + self.executions_per_trial)
        ]

    def _train(self, trial, execution, model_dir):
        """Trains once, or waits for the worker that does."""
        model_config, config = self.space.propose(
            trial.hyperparameters,
            self.training.replace(seed=self.training.run.seed + execution),
        )
        failure = model_dir / FAILURE_FILE
        with folder_lock(model_dir / CHECKPOINTS, "trains", wait=True):
            if failure.exists():
                return
            _log.info("Trial %s: %s", trial.trial_id, model_dir)
            keras.utils.clear_session(free_memory=True)
            try:
                train(
                    model_config,
                    config,
                    model_dir,
                    preset=trial.hyperparameters.values["variant"],
                    strategy=self.strategy,
                )
            except Exception as error:
                if not _is_failure_of_a_trial(error):
                    raise
                reason = " ".join(str(error).split()) or type(error).__name__
                write_text(failure, reason)


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

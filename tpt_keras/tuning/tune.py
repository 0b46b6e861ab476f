"""A search from its space to a report."""

import contextlib
import dataclasses
import pathlib

import keras_tuner

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.errors import check_positive_integer
from tpt_keras.files import folder_lock
from tpt_keras.training.config import MAY_CHANGE
from tpt_keras.training.training_data import data_fingerprints
from tpt_keras.training.training_data import training_sources
from tpt_keras.tuning.objectives import OBJECTIVES
from tpt_keras.tuning.oracles import TUNERS
from tpt_keras.tuning.oracles import make_oracle
from tpt_keras.tuning.roles import role
from tpt_keras.tuning.search_folder import ensure_search
from tpt_keras.tuning.search_report import write_report
from tpt_keras.tuning.search_space import SEARCHED
from tpt_keras.tuning.training_tuner import TrainingTuner

# Fields of one training, or of language models alone.
_NOT_OF_A_SEARCH = (
    "segment_length",
    "train_minutes",
)


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
    """Searches for the best model, or goes on where a search was.

    With keras-tuner's variables in the environment (`KERASTUNER_TUNER_ID`,
    `KERASTUNER_ORACLE_IP`, `KERASTUNER_ORACLE_PORT`), this process is the chief
    of a search or one of its workers.

    Args:
        space: A `SearchSpace`.
        training: A `TrainingConfig` of everything that is not searched. An
            execution's seed is its seed and the execution's number.
        folder: Folder for everything that the search leaves.
        tuner: `"random"`, `"bayesian"`, `"hyperband"` or `"grid"`.
        objective: One of `OBJECTIVES`.
        max_trials: Most trials; Hyperband makes as many as its budget, the
            training's steps, asks for.
        executions_per_trial: How often each trial is trained. Its score is the
            mean.
        strategy: The strategy of each training, as `make_strategy` makes it.

    Returns:
        List of dicts, the trials of the report; empty for a worker.

    Raises:
        UsageError: If the folder belongs to another search or another process
            searches there, or if the data is not there.

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
    check_names("tuner", [tuner], TUNERS)
    check_names("objective", [objective], OBJECTIVES)
    check_positive_integer("max_trials", max_trials)
    check_positive_integer("executions_per_trial", executions_per_trial)
    _check_epochs(tuner, training)
    is_worker = role() == "worker"
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
        # Wherever it is: the data itself is compared.
        "data": data_fingerprints(training_sources(training)),
    }
    with contextlib.ExitStack() as stack:
        if not is_worker:
            stack.enter_context(folder_lock(folder, "searches"))
        ensure_search(folder, search)
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
        TrainingTuner(
            oracle,
            space,
            training,
            folder,
            executions_per_trial,
            strategy,
        ).search()
        return [] if is_worker else write_report(folder)


def _check_epochs(tuner, training):
    """An epoch of Hyperband lies between two evaluations."""
    steps = training.run.steps_per_evaluation
    if tuner == "hyperband" and training.run.train_steps % steps:
        raise UsageError(
            f"--tuner=hyperband trains from evaluation to evaluation: the "
            f"{training.run.train_steps} --train_steps must be a multiple of "
            f"the {steps} --steps_per_evaluation."
        )

"""What came of a search's trials, read from its folder."""

import pathlib

from tpt_keras.models.count_weights import count_weights
from tpt_keras.models.stored_config import from_stored
from tpt_keras.training.metrics_log import read_metrics
from tpt_keras.training.model_folder import CONFIG_FILE
from tpt_keras.training.model_folder import read_config
from tpt_keras.tuning.objectives import OBJECTIVES
from tpt_keras.tuning.objectives import best_of
from tpt_keras.tuning.search_folder import FAILURE_FILE
from tpt_keras.tuning.search_folder import execution_folder
from tpt_keras.tuning.search_folder import read_search
from tpt_keras.tuning.search_folder import read_trials
from tpt_keras.tuning.search_folder import trial_folder


def search_results(folder):
    """The trials of a search, also of one that is not finished.

    Args:
        folder: The search's folder.

    Returns:
        List of dicts, by the trials' numbers: `trial`, `status`,
        `hyperparameters` (a dict, `variant` among them), `hidden_dim`,
        `intermediate_dim`, `weights`, `score` (the mean over the executions,
        `None` without one), `scores` (of each), `best_step` (of the first) and
        `reason` (why it failed).

    Raises:
        UsageError: If no search is there, or a file of it is damaged.
    """
    folder = pathlib.Path(folder)
    search = read_search(folder)
    return [_result(folder, search, trial) for trial in read_trials(folder)]


def ranked(results, objective):
    """The completed trials, the best first.

    Args:
        results: What `search_results` gave.
        objective: A name in `OBJECTIVES`.

    Returns:
        List of dicts.
    """
    completed = [
        result for result in results if result["status"] == "completed"
    ]
    return sorted(
        completed,
        key=lambda result: result["score"],
        reverse=OBJECTIVES[objective] == "max",
    )


def _result(folder, search, trial):
    trial_id = trial["trial_id"]
    model_dirs = [
        execution_folder(folder, trial_id, execution)
        for execution in range(search["executions_per_trial"])
    ]
    rows = [
        best_of(read_metrics(model_dir), search["objective"])
        for model_dir in model_dirs
    ]
    rows = [row for row in rows if row is not None]
    return {
        "trial": trial_id,
        "status": trial["status"].lower(),
        "hyperparameters": _hyperparameters(trial),
        **_size(model_dirs[0]),
        "score": trial["score"],
        "scores": [row[search["objective"]] for row in rows],
        "best_step": rows[0]["step"] if rows else None,
        "reason": _reason(folder, trial),
    }


def _hyperparameters(trial):
    """The values of a trial, without how Hyperband came to it."""
    return {
        name.removeprefix("tuner/"): value
        for name, value in trial["hyperparameters"]["values"].items()
        if not name.startswith("tuner/") or name == "tuner/epochs"
    }


def _size(model_dir):
    """The size of a trial's model, where there is one already."""
    if not (model_dir / CONFIG_FILE).exists():
        return dict.fromkeys(("hidden_dim", "intermediate_dim", "weights"))
    model = from_stored(read_config(model_dir)["model"])
    return {
        "hidden_dim": model.hidden_dim,
        # An LSTM has none.
        "intermediate_dim": getattr(model, "intermediate_dim", None),
        "weights": count_weights(model),
    }


def _reason(folder, trial):
    """Why a trial failed; nothing where it did not."""
    path = trial_folder(folder, trial["trial_id"]) / FAILURE_FILE
    if trial["status"] != "FAILED" or not path.exists():
        return ""
    return path.read_text().strip()

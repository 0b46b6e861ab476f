"""The folder of a search, and the trials in it.

search.json                   the resolved search
trials/NAME/trial.json        a trial: hyperparameters, status, scores
trials/NAME/execution0/       one of its trainings, a model's folder
report.{md,json}              the results
choices.png, parallel_coordinates.png
best.cfg                      the best trial, for experiments.train
.lock                         held by the searching process

A trial's name is a hash of its hyperparameters, so that a search that proposes
it again finds it, whatever its number is then.
"""

import hashlib
import json
import pathlib

from tpt_keras.errors import UsageError
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.models import count_weights
from tpt_keras.models.configs import from_stored
from tpt_keras.training.state.logs import best_row
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.state.model_folder import CONFIG_FILE
from tpt_keras.training.state.model_folder import differences
from tpt_keras.training.state.model_folder import read_config

SEARCH_FILE = "search.json"
TRIAL_FILE = "trial.json"
# Metrics of the validation, and the better of two values.
OBJECTIVES = {
    "val_sequence_accuracy": "max",
    "val_token_accuracy": "max",
    "val_loss": "min",
}


def trial_folder(folder, values):
    """The folder of a trial.

    Args:
        folder: The search's folder.
        values: Dict of the trial's hyperparameters.

    Returns:
        A path, which may not exist yet.
    """
    content = json.dumps(sorted(own_values(values).items())).encode()
    name = hashlib.sha256(content).hexdigest()[:8]
    return pathlib.Path(folder) / "trials" / name


def own_values(values):
    """Hyperparameters without Hyperband's notes, but for its epochs."""
    return {
        name.removeprefix("tuner/"): value
        for name, value in values.items()
        if not name.startswith("tuner/") or name == "tuner/epochs"
    }


def execution_folder(trial_dir, execution):
    """The model's folder of one training of a trial."""
    return pathlib.Path(trial_dir) / f"execution{execution}"


def write_trial(trial_dir, record):
    """Writes the record of a trial.

    Args:
        trial_dir: The trial's folder.
        record: Dict of `trial`, its number, `hyperparameters`, `status`
            (`"running"`, `"completed"` or `"failed"`), `scores`, one of each
            execution, and `reason`, why it failed.
    """
    trial_dir.mkdir(parents=True, exist_ok=True)
    with whole_file(trial_dir / TRIAL_FILE) as partial:
        partial.write_text(json.dumps(record, indent=2))


def read_trial(trial_dir):
    """The record of a trial, or `None` if there is none.

    Args:
        trial_dir: The trial's folder.

    Returns:
        Dict, see `write_trial`.

    Raises:
        UnreadableFileError: If it is damaged.
    """
    path = pathlib.Path(trial_dir) / TRIAL_FILE
    return _read(path) if path.exists() else None


def ensure_search(folder, search):
    """Makes a folder the search's, unless it is another's.

    Args:
        folder: The folder; made if it does not exist.
        search: Dict of the resolved search.

    Raises:
        UsageError: If the folder holds another search, with the difference.
    """
    path = pathlib.Path(folder) / SEARCH_FILE
    search = json.loads(json.dumps(search))  # without tuples, as it is read
    if path.exists():
        found = "; ".join(
            difference for _, difference in differences(_read(path), search)
        )
        if found:
            raise UsageError(
                f"The folder {str(folder)!r} belongs to another search "
                f"({found}). Repeat that search, or take another "
                "`tuning_dir`.",
                field="tuning_dir",
                path=folder,
            )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(json.dumps(search, indent=2))


def read_search(folder):
    """The resolved search of a folder.

    Args:
        folder: The folder.

    Returns:
        Dict.

    Raises:
        UsageError: If there is none, or it is damaged.
    """
    path = pathlib.Path(folder) / SEARCH_FILE
    if not path.is_file():
        raise UsageError(
            f"The folder {str(folder)!r} holds no {SEARCH_FILE}: it is not the "
            "folder of a search.",
            path=folder,
        )
    return _read(path)


def _read(path):
    with reading(path, "Restore it, or search in another folder."):
        return json.loads(path.read_text())


def search_results(folder):
    """The trials of a search, finished or not.

    Args:
        folder: The search's folder.

    Returns:
        List of dicts, by the trials' numbers: what `write_trial` takes, and
        `folder` (of the trial, within the search's), `hidden_dim`,
        `intermediate_dim`, `weights`, `score` (the mean of the scores, `None`
        without any) and `best_step` (of the first execution).

    Raises:
        UsageError: If the folder holds no search, or a damaged one.
    """
    folder = pathlib.Path(folder)
    objective = read_search(folder)["objective"]
    paths = folder.glob(f"trials/*/{TRIAL_FILE}")
    results = [_result(folder, path.parent, objective) for path in paths]
    return sorted(results, key=lambda result: int(result["trial"]))


def ranked(results, objective):
    """The completed trials, the best first.

    Args:
        results: The return value of `search_results`.
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


def best_of(history, objective):
    """The row of a training's metrics with the best value, or `None`.

    Args:
        history: Rows of `metrics.jsonl`.
        objective: A name in `OBJECTIVES`.

    Returns:
        See `metrics_log.best_row`.
    """
    best = max if OBJECTIVES[objective] == "max" else min
    return best_row(history, objective, best)


def _result(folder, trial_dir, objective):
    record = read_trial(trial_dir)
    scores = record["scores"]
    model_dir = execution_folder(trial_dir, 0)
    best = best_of(read_metrics(model_dir), objective)
    return {
        **record,
        "folder": trial_dir.relative_to(folder).as_posix(),
        **_size(model_dir),
        "score": sum(scores) / len(scores) if scores else None,
        "best_step": best["step"] if best else None,
    }


def _size(model_dir):
    if not (model_dir / CONFIG_FILE).exists():
        return dict.fromkeys(("hidden_dim", "intermediate_dim", "weights"))
    model = from_stored(read_config(model_dir)["model"])
    return {
        "hidden_dim": model.hidden_dim,
        # An LSTM has none.
        "intermediate_dim": getattr(model, "intermediate_dim", None),
        "weights": count_weights(model),
    }

"""What lies in a search's folder.

search.json               what is searched, resolved
oracle.json               the oracle's state
trial_*/trial.json        a trial: hyperparameters, status, score
trial_*/failure.txt       why it failed
trial_*/execution*/       its trainings: model folders
report.{md,html,json}     the answer
choices.png, parallel_coordinates.png
best.cfg                  the best trial, for experiments.train
.lock                     who has it searches
"""

import json
import pathlib

from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.training.same_training import defaults
from tpt_keras.training.same_training import differences
from tpt_keras.tuning.search_space import SearchSpace

SEARCH_FILE = "search.json"
FAILURE_FILE = "failure.txt"


def trial_folder(folder, trial_id):
    """The folder of a trial, in that of its search."""
    return pathlib.Path(folder) / f"trial_{trial_id}"


def execution_folder(folder, trial_id, execution):
    """The model folder of a trial's execution."""
    return trial_folder(folder, trial_id) / f"execution{execution}"


def ensure_search(folder, search):
    """Makes sure that the folder is this search's.

    Args:
        folder: The folder; made where it is not there.
        search: Dict of what is searched.

    Raises:
        UsageError: If another search is there, with the difference.
    """
    path = pathlib.Path(folder) / SEARCH_FILE
    search = json.loads(json.dumps(search))  # as read, without tuples
    if path.exists():
        stored = _complete(read_search(folder), search)
        found = "; ".join(
            difference for _, difference in differences(stored, search)
        )
        if found:
            raise UsageError(
                f"The folder {str(folder)!r} belongs to another search "
                f"({found}). Take the same one, or another --tuning_dir."
            )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(json.dumps(search, indent=2))


def _complete(stored, search):
    """What is stored, with the defaults of what its version did not know."""
    completed = dict(stored)
    known = defaults(SearchSpace)
    completed["space"] = {
        **{key: known[key] for key in known if key in search["space"]},
        **stored.get("space", {}),
    }
    return completed


def read_search(folder):
    """What is searched in a folder.

    Args:
        folder: The folder.

    Returns:
        Dict.

    Raises:
        UsageError: If it is not there, or damaged.
    """
    return _read(pathlib.Path(folder) / SEARCH_FILE)


def read_trials(folder):
    """The trials of a search, as keras-tuner keeps them.

    Args:
        folder: The search's folder.

    Returns:
        List of dicts with `trial_id`, `hyperparameters`, `status` and `score`,
        by their numbers.

    Raises:
        UsageError: If one is damaged.
    """
    paths = pathlib.Path(folder).glob("trial_*/trial.json")
    return sorted(map(_read, paths), key=lambda trial: int(trial["trial_id"]))


def _read(path):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"There is no file {str(path)!r}.") from None
    except (ValueError, RecursionError):
        raise UsageError(
            f"The file {str(path)!r} is damaged. Restore it, or search in "
            "another folder."
        ) from None

"""What evaluations of a model gave, in its folder's `evaluation.json`."""

import json
import pathlib

import filelock

from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.training.metrics_log import best_row
from tpt_keras.training.metrics_log import read_metrics

EVALUATION_FILE = "evaluation.json"

# What makes an evaluation the same as another.
_KEY = ("model", "step", "dataset", "module", "split")


def write_evaluations(model_dir, rows):
    """Adds evaluations, in place of earlier ones of the same.

    Args:
        model_dir: Folder of the model.
        rows: List of dicts with `model`, `"last"` or `"best"`, the `step` it
            is of, `dataset`, `module`, `split` and the figures.

    Raises:
        UsageError: If the file that is there is damaged.
    """
    path = pathlib.Path(model_dir) / EVALUATION_FILE
    # Another evaluation may end just now.
    with filelock.FileLock(path.with_name(".evaluation.lock")):
        kept = {_key(row): row for row in read_evaluations(model_dir)}
        kept |= {_key(row): row for row in rows}
        with whole_file(path) as partial:
            partial.write_text(json.dumps(list(kept.values()), indent=2))


def read_evaluations(model_dir):
    """The evaluations of a model.

    Args:
        model_dir: Its folder.

    Returns:
        List of dicts, as they were written. Those of version 0.2 tell neither
        the model nor its step.

    Raises:
        UsageError: If the file is damaged.
    """
    path = pathlib.Path(model_dir) / EVALUATION_FILE
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text())
    except (ValueError, RecursionError):
        rows = None
    if not (
        isinstance(rows, list) and all(isinstance(row, dict) for row in rows)
    ):
        raise UsageError(
            f"The file {str(path)!r} is damaged. Restore it, or move it away."
        )
    return rows


def saved_step(model_dir, best):
    """The step that a saved model of a training is of.

    Args:
        model_dir: The training's folder.
        best: Whether it is the model that was best in validation, or the last.

    Returns:
        The step, or `None` where nothing tells.
    """
    rows = read_metrics(model_dir)
    # The first of equal ones, as it was kept.
    row = best_row(rows) if best else next(reversed(rows), None)
    return row and row["step"]


def _key(row):
    return tuple(str(row.get(name)) for name in _KEY)

import collections
import json
import math
import numbers
import pathlib

from tpt_keras.files import named_in_errors
from tpt_keras.files import whole_file
from tpt_keras.training.event_file import EventFile

METRICS_FILE = "metrics.jsonl"

# What tells which model is best, and how: of solvers, of language models.
_OBJECTIVES = {"val_sequence_accuracy": max, "val_bits_per_character": min}


class MetricsLog:
    """What one watches: `metrics.jsonl` for scripts, `logs/` for TensorBoard.

    A row of `metrics.jsonl` is a dict with `step`, the number of optimizer
    steps so far, and the metrics since the row before: `loss` (nats per
    target token), `sequence_accuracy`, `token_accuracy`, `gradient_norm`
    (before clipping), `learning_rate`, `examples_per_second`,
    `tokens_per_second` (that are no padding, questions' and answers'), and
    where there was an evaluation `val_loss`, `val_sequence_accuracy`,
    `val_token_accuracy`, and `interpolate/<module>` and `extrapolate/<module>`,
    the sequence accuracies. Of a language model there are no sequences, and
    `bits_per_character` is its loss to base 2.

    Args:
        model_dir: Folder of the training.
    """

    def __init__(self, model_dir):
        self._folder = pathlib.Path(model_dir)
        self._path = self._folder / METRICS_FILE
        self._event_files = {}

    def drop_after(self, step):
        """Drops the rows behind the step that a training goes on from."""
        rows = [
            row for row in read_metrics(self._folder) if row["step"] <= step
        ]
        with whole_file(self._path) as partial:
            partial.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(self, row):
        """Adds a row."""
        with named_in_errors(self._path), self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        runs = collections.defaultdict(dict)
        for name, value in row.items():
            if name != "step":
                run, tag = run_and_tag(name)
                runs[run][tag] = value
        for run, values in runs.items():
            self._event_file(run).write(row["step"], values)

    def _event_file(self, run):
        if run not in self._event_files:
            self._event_files[run] = EventFile(self._folder / "logs" / run)
        return self._event_files[run]


def run_and_tag(name):
    """Where TensorBoard draws a metric.

    So that the same of training and of evaluation share a diagram.

    Args:
        name: Name of a metric in `metrics.jsonl`.

    Returns:
        The run and the tag.
    """
    if name.startswith("val_"):
        return "validation", name.removeprefix("val_")
    for split in ("interpolate", "extrapolate"):
        if name.startswith(f"{split}/"):
            return split, name.replace(split, "sequence_accuracy", 1)
        if name.startswith(f"{split}_"):  # the mean over the modules
            return split, name.removeprefix(f"{split}_")
    return "train", name


def read_metrics(model_dir):
    """The rows of a training's `metrics.jsonl`.

    Args:
        model_dir: Folder of the training.

    Returns:
        List of dicts of numbers, `step` among them.
    """
    path = pathlib.Path(model_dir) / METRICS_FILE
    if not path.is_file():
        return []
    rows = map(_parse, path.read_bytes().splitlines())
    return [row for row in rows if row is not None]


def best_row(rows, metric=None, best=max):
    """Where a training was best.

    Args:
        rows: What `read_metrics` gave.
        metric: Name of the metric. Defaults to what the best model of such a
            training is chosen by.
        best: `max`, or `min` where less is better; of a given metric.

    Returns:
        The first of the best rows, or `None` where the metric is not there or
        never finite.
    """
    if metric is None:
        metric = objective(rows)
        best = _OBJECTIVES[metric]
    rows = [row for row in rows if math.isfinite(row.get(metric, math.nan))]
    return best(rows, key=lambda row: row[metric], default=None)


def objective(rows):
    """Name of the metric that a training's best model is chosen by.

    Args:
        rows: What `read_metrics` gave.
    """
    names = set().union(*rows)
    found = [name for name in _OBJECTIVES if name in names]
    return next(iter(found), "val_sequence_accuracy")


def _parse(line):
    """The row of a line, or `None`.

    A process that was killed may leave a part of a line, and a disk that fails
    may leave anything.
    """
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    is_sound = (
        isinstance(row, dict)
        and isinstance(row.get("step"), int)
        and all(isinstance(value, numbers.Real) for value in row.values())
    )
    return row if is_sound else None

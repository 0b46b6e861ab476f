"""The metrics of a training, for scripts and for TensorBoard."""

import collections
import json
import math
import numbers
import os
import pathlib
import socket
import time
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

from tpt_keras.files import named_in_errors
from tpt_keras.files import write_text
from tpt_keras.typing import StrPath

METRICS_FILE = "metrics.jsonl"

# The metric that the best model is chosen by: of solvers, of language models.
_OBJECTIVES = {"val_sequence_accuracy": max, "val_bits_per_character": min}


class MetricsLog:
    """Writes metrics to `metrics.jsonl` and, for TensorBoard, to `logs/`.

    A row of `metrics.jsonl` has `step`, the optimizer steps so far, and the
    metrics since the row before: `loss` (nats per target token),
    `sequence_accuracy`, `token_accuracy`, `gradient_norm` (before clipping),
    `learning_rate`, `examples_per_second`, `tokens_per_second` (without
    padding), and `minutes`, the duration of the training so far. A training on
    a stream has `waiting_for_data`, the share of the time that it waited for
    problems. After an evaluation a row has `val_loss`, `val_sequence_accuracy`,
    `val_token_accuracy` and the sequence accuracies `interpolate/<module>` and
    `extrapolate/<module>`. A language model has `bits_per_character`, its loss
    to base 2, in place of sequence accuracies.
    """

    def __init__(self, model_dir: StrPath) -> None:
        self._folder = pathlib.Path(model_dir)
        self._path = self._folder / METRICS_FILE
        self._event_files = {}

    def drop_after(self, step: int) -> None:
        """Drops the rows after the step that a training resumes from."""
        rows = [
            row for row in read_metrics(self._folder) if row["step"] <= step
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_text(self._path, text)

    def write(self, row: dict[str, Any]) -> None:
        """Adds a row."""
        append_rows(self._path, [row])
        runs = collections.defaultdict(dict)
        for name, value in row.items():
            if name != "step":
                run, tag = run_and_tag(name)
                runs[run][tag] = value
        for run, values in runs.items():
            if run not in self._event_files:
                folder = self._folder / "logs" / run
                self._event_files[run] = EventFile(folder)
            self._event_files[run].write(row["step"], values)


def append_rows(path: pathlib.Path, rows: Iterable[dict[str, Any]]) -> None:
    """Adds rows to a file of JSON lines."""
    with named_in_errors(path), path.open("ab+") as file:
        file.seek(max(0, file.tell() - 1))
        if file.read(1) not in (b"", b"\n"):
            # A killed process has left a line without its end.
            file.write(b"\n")
        file.writelines(f"{json.dumps(row)}\n".encode() for row in rows)


def run_and_tag(name: str) -> tuple[str, str]:
    """Returns the TensorBoard run and tag of a metric in `metrics.jsonl`.

    The same metric of training and of evaluation shares a diagram.
    """
    if name.startswith("val_"):
        return "validation", name.removeprefix("val_")
    split, is_of_split, group = name.partition("/")
    if is_of_split:
        return split, f"sequence_accuracy/{group}"
    split, is_mean, _ = name.partition("_sequence_accuracy")
    return (split, "sequence_accuracy") if is_mean else ("train", name)


def read_metrics(model_dir: StrPath) -> list[dict[str, Any]]:
    """Reads the rows of a training's `metrics.jsonl`, dicts of numbers."""
    path = pathlib.Path(model_dir) / METRICS_FILE
    if not path.is_file():
        return []
    rows = map(_parse, path.read_bytes().splitlines())
    return [row for row in rows if row is not None]


def best_row(
    rows: Iterable[dict[str, Any]],
    metric: str | None = None,
    best: Callable[..., Any] = max,
) -> dict[str, Any] | None:
    """Returns the first of the rows with the best value of a metric.

    Args:
        rows: The rows of `read_metrics`.
        metric: Name of the metric. Defaults to the one that the best model is
            chosen by.
        best: `max`, or `min` if less is better; for a given metric.

    Returns:
        A row, or `None` if the metric is missing or never finite.
    """
    if metric is None:
        names = set().union(*rows)
        known = (name for name in _OBJECTIVES if name in names)
        metric = next(known, "val_sequence_accuracy")
        best = _OBJECTIVES[metric]
    rows = [row for row in rows if math.isfinite(row.get(metric, math.nan))]
    return best(rows, key=lambda row: row[metric], default=None)


def _parse(line):
    """Returns the row of a line, or `None` if a killed process has left it."""
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


class EventFile:
    """A file of TensorBoard's format, written without TensorFlow.

    `tensorboard.summary.Writer` imports TensorFlow where it is installed.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        # Imported late: tensorboard is slow to import.
        from tensorboard.compat.proto import event_pb2
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event = event_pb2.Event
        self._scalar = scalar_pb
        self._writer = RecordWriter
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard goes by the middle of the name, and reads in order.
        self._path = folder / (
            f"events.out.tfevents.{time.time_ns() // 1000:016d}."
            f"{socket.gethostname()}.{os.getpid()}.v2"
        )
        self._write([event_pb2.Event(file_version="brain.Event:2")])

    def write(self, step: int, values: dict[str, float]) -> None:
        """Adds a dict of tags to numbers and writes them out."""
        self._write(
            self._event(step=step, summary=self._scalar(tag, value))
            for tag, value in values.items()
        )

    def _write(self, events):
        with named_in_errors(self._path), self._path.open("ab") as file:
            writer = self._writer(file)
            for event in events:
                event.wall_time = time.time()
                writer.write(event.SerializeToString())

import json
import math
import pathlib

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import (
    EventAccumulator,
)

from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state.logs import MetricsLog
from tpt_keras.training.state.logs import append_rows
from tpt_keras.training.state.logs import best_row
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.state.model_folder import saved_step

ROWS = [
    {"step": 2, "loss": 3.5, "learning_rate": 0.125},
    {
        "step": 4,
        "loss": 2.5,
        "learning_rate": 0.25,
        "val_loss": 2.75,
        "val_sequence_accuracy": 0.5,
        "interpolate_sequence_accuracy": 0.375,
        "interpolate/numbers__gcd": 0.25,
        "interpolate/numbers__place_value": 0.5,
        "test_sequence_accuracy": 0.125,
        "test/capitals": 0.125,
    },
    {"step": 6, "loss": 1.5, "learning_rate": 0.0625},
]


def write(folder, rows, step=0):
    log = MetricsLog(folder)
    log.drop_after(step)
    for row in rows:
        log.write(row)


def drawn(folder):
    """Pairs of step and value in TensorBoard's files, by run and tag."""
    curves = {}
    for run in (pathlib.Path(folder) / "logs").iterdir():
        events = EventAccumulator(str(run), size_guidance={"tensors": 0})
        events.Reload()
        for tag in events.Tags()["tensors"]:
            curves[run.name, tag] = [
                (event.step, float(tf.make_ndarray(event.tensor_proto)))
                for event in events.Tensors(tag)
            ]
    return curves


def test_a_row_is_there_at_once(tmp_path):
    log = MetricsLog(tmp_path)
    for count, row in enumerate(ROWS, start=1):
        log.write(row)
        assert read_metrics(tmp_path) == ROWS[:count]
        assert drawn(tmp_path)["train", "loss"][-1] == (
            row["step"],
            row["loss"],
        )
    # One row a line, for scripts that are not in Python.
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == ROWS


@pytest.mark.parametrize(("step", "kept"), [(1, 0), (2, 1), (5, 2), (99, 3)])
def test_going_on_drops_what_comes_later(tmp_path, step, kept):
    write(tmp_path, ROWS)
    log = MetricsLog(tmp_path)
    log.drop_after(step)
    assert read_metrics(tmp_path) == ROWS[:kept]
    log.write({"step": 100, "loss": 1.0})
    assert read_metrics(tmp_path) == [*ROWS[:kept], {"step": 100, "loss": 1.0}]


@pytest.mark.parametrize("length", [1, 20, -1])
def test_a_torn_last_line_is_survived(tmp_path, length):
    """A log whose last line was cut off resumes without this line."""
    write(tmp_path, ROWS[:2])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(ROWS[2])[:length])
    assert read_metrics(tmp_path) == ROWS[:2]
    write(tmp_path, ROWS[2:], step=4)
    assert read_metrics(tmp_path) == ROWS


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b'{"loss": 1.5}',
        b'{"step": "4", "loss": 1.5}',
        b'{"step": 4, "loss": "low"}',
        b'{"step": 4, "lo\xffs": 1.5}',
        b"\x00\x00",
        b"[" * 100_000,
    ],
)
def test_a_damaged_line_is_survived(tmp_path, line):
    """A damaged line anywhere in the log is skipped."""
    write(tmp_path, ROWS)
    path = tmp_path / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    lines.insert(1, line)
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert read_metrics(tmp_path) == ROWS
    MetricsLog(tmp_path).drop_after(4)
    assert read_metrics(tmp_path) == ROWS[:2]


def test_a_full_disk_is_named(tmp_path):
    log = MetricsLog(tmp_path)
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left.*metrics\.jsonl"):
        log.write(ROWS[0])


def test_what_tensorboard_shows(tmp_path):
    write(tmp_path, ROWS)
    assert drawn(tmp_path) == {
        ("train", "loss"): [(2, 3.5), (4, 2.5), (6, 1.5)],
        ("train", "learning_rate"): [(2, 0.125), (4, 0.25), (6, 0.0625)],
        ("validation", "loss"): [(4, 2.75)],
        ("validation", "sequence_accuracy"): [(4, 0.5)],
        ("interpolate", "sequence_accuracy"): [(4, 0.375)],
        ("interpolate", "sequence_accuracy/numbers__gcd"): [(4, 0.25)],
        ("interpolate", "sequence_accuracy/numbers__place_value"): [(4, 0.5)],
        ("test", "sequence_accuracy"): [(4, 0.125)],
        ("test", "sequence_accuracy/capitals"): [(4, 0.125)],
    }


def test_step_of_a_saved_model(tmp_path):
    assert read_metrics(tmp_path) == []
    assert saved_step(tmp_path, best=True) is None
    assert saved_step(tmp_path, best=False) is None
    scores = {2: 0.25, 4: 0.5, 6: math.nan, 8: 0.5, 10: 0.375}
    rows = [
        {"step": step, "val_sequence_accuracy": score}
        for step, score in scores.items()
    ]
    write(tmp_path, [*rows, {"step": 11, "loss": 1.5}])
    # The first of the equal ones: the second was no better.
    assert saved_step(tmp_path, best=True) == 4
    assert saved_step(tmp_path, best=False) == 11


def test_step_of_a_compressed_model(tmp_path):
    """A callback may have ended its training."""
    training = TrainingConfig.from_flat(modules=["m"], train_steps=90)
    config = {"training": training.to_stored()}
    for step in ({}, {"step": 32}):
        text = json.dumps({**config, **step})
        (tmp_path / "config.json").write_text(text)
        assert saved_step(tmp_path, best=False) == step.get("step")


def test_best_row_has_the_fewest_bits_of_a_language_model():
    rows = [
        {"step": step, "val_bits_per_character": bits}
        for step, bits in ((1, 3.0), (2, 2.0), (3, math.nan), (4, 2.5))
    ]
    assert best_row(rows)["step"] == 2
    assert best_row(rows, "val_bits_per_character", max)["step"] == 1
    assert best_row([{"step": 1, "loss": 1.0}]) is None


def test_rows_follow_a_torn_line(tmp_path):
    path = tmp_path / "evaluations.jsonl"
    append_rows(path, [{"step": 1}])
    path.write_text(path.read_text() + '{"step": 2, "mod')
    append_rows(path, [{"step": 3}, {"step": 4}])
    lines = path.read_text().splitlines()
    assert lines[1] == '{"step": 2, "mod'
    assert [json.loads(lines[i])["step"] for i in (0, 2, 3)] == [1, 3, 4]

import csv

import numpy as np
import pytest
from matplotlib import image
from matplotlib.axes import Axes

from tpt_keras.visualization.learning_curves import draw_learning_curves

COLUMNS = (
    "epoch",
    "loss",
    "sequence_accuracy",
    "token_accuracy",
    "val_loss",
    "val_sequence_accuracy",
    "val_token_accuracy",
)
ROWS = [
    (0, 3.5, 0.0, 0.25, 3.0, 0.125, 0.5),
    (1, 2.0, 0.25, 0.5, 2.5, 0.5, 0.75),
    (2, 0.5, 0.75, 1.0, 1.0, 0.625, 1.0),
]


@pytest.fixture
def write_history(tmp_path):
    def write(rows):
        path = tmp_path / "history.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])
        return path

    return write


@pytest.mark.parametrize("num_rows", [0, 1, 3])
def test_is_a_picture_of_sensible_size(tmp_path, write_history, num_rows):
    path = tmp_path / "curves.png"
    draw_learning_curves(write_history(ROWS[:num_rows]), 100, 300, path)
    pixels = image.imread(path)
    height, width = pixels.shape[:2]
    assert 300 <= height <= 800
    assert 800 <= width <= 2000
    # Mostly white, and something on it in the left and in the right half.
    dark = pixels[..., :3].min(axis=-1) < 0.9
    assert dark.mean() < 0.3
    for half in np.array_split(dark, 2, axis=1):
        assert half.mean() > 0.001


def test_draws_what_the_history_says(tmp_path, write_history, monkeypatch):
    curves = []
    plot = Axes.plot

    def record(axes, x, y, **kwargs):
        curves.append((list(x), list(y), kwargs["label"]))
        return plot(axes, x, y, **kwargs)

    monkeypatch.setattr(Axes, "plot", record)
    path = tmp_path / "curves.png"
    draw_learning_curves(write_history(ROWS), 50, 120, path)
    steps = [50, 100, 120]
    assert curves == [
        (steps, [3.5, 2.0, 0.5], "training"),
        (steps, [3.0, 2.5, 1.0], "unseen"),
        (steps, [0.0, 0.25, 0.75], "training"),
        (steps, [0.125, 0.5, 0.625], "unseen"),
    ]


def test_other_curves_are_another_picture(tmp_path, write_history):
    paths = [tmp_path / "one.png", tmp_path / "other.png"]
    for path, rows in zip(paths, (ROWS, ROWS[:2])):
        draw_learning_curves(write_history(rows), 100, 300, path)
    pixels = [image.imread(path) for path in paths]
    assert pixels[0].shape == pixels[1].shape
    assert (pixels[0] != pixels[1]).any()

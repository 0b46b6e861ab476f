import numpy as np
import pytest
from matplotlib import image
from matplotlib.axes import Axes

from tpt_keras.visualization.learning_curves import draw_learning_curves

# As a training leaves them: an evaluation every other time, and at the end.
ROWS = [
    {"step": 50, "loss": 3.5, "sequence_accuracy": 0.0},
    {
        "step": 100,
        "loss": 2.0,
        "sequence_accuracy": 0.25,
        "val_loss": 2.5,
        "val_sequence_accuracy": 0.5,
    },
    {
        "step": 120,
        "loss": 0.5,
        "sequence_accuracy": 0.75,
        "val_loss": 1.0,
        "val_sequence_accuracy": 0.625,
    },
]


@pytest.mark.parametrize("num_rows", [0, 1, 3])
def test_is_a_picture_of_sensible_size(tmp_path, num_rows):
    path = tmp_path / "curves.png"
    draw_learning_curves(ROWS[:num_rows], path)
    pixels = image.imread(path)
    height, width = pixels.shape[:2]
    assert 300 <= height <= 800
    assert 800 <= width <= 2000
    # Mostly white, and something on it in the left and in the right half.
    dark = pixels[..., :3].min(axis=-1) < 0.9
    assert dark.mean() < 0.3
    for half in np.array_split(dark, 2, axis=1):
        assert half.mean() > 0.001


def test_draws_what_the_rows_say(tmp_path, monkeypatch):
    curves = []
    plot = Axes.plot

    def record(axes, x, y, **kwargs):
        curves.append((list(x), list(y), kwargs["label"]))
        return plot(axes, x, y, **kwargs)

    monkeypatch.setattr(Axes, "plot", record)
    draw_learning_curves(ROWS, tmp_path / "curves.png")
    assert curves == [
        ([50, 100, 120], [3.5, 2.0, 0.5], "training"),
        ([100, 120], [2.5, 1.0], "unseen"),
        ([50, 100, 120], [0.0, 0.25, 0.75], "training"),
        ([100, 120], [0.5, 0.625], "unseen"),
    ]


def test_other_curves_are_another_picture(tmp_path):
    paths = [tmp_path / "one.png", tmp_path / "other.png"]
    for path, rows in zip(paths, (ROWS, ROWS[:2])):
        draw_learning_curves(rows, path)
    pixels = [image.imread(path) for path in paths]
    assert pixels[0].shape == pixels[1].shape
    assert (pixels[0] != pixels[1]).any()

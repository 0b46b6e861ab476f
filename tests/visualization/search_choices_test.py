import pytest

from tpt_keras.visualization.parallel_coordinates import (
    draw_parallel_coordinates,
)
from tpt_keras.visualization.search_choices import draw_choices
from tpt_keras.visualization.search_choices import searched_values

TRIALS = [
    {"score": 0.5, "hyperparameters": {"variant": "a", "layers": 2, "dim": 1}},
    {"score": 0.7, "hyperparameters": {"variant": "b", "layers": 1, "dim": 1}},
    {
        "score": 0.6,
        "hyperparameters": {"variant": "b", "layers": 1, "share": 0.1},
    },
    {
        "score": 0.6,
        "hyperparameters": {"variant": "b", "layers": 1, "share": 0.2},
    },
]


def test_what_was_searched():
    """Not what all have in common, nor what is the same wherever it is."""
    assert searched_values(TRIALS) == {
        "variant": ["a", "b"],
        "layers": [1, 2],
        "share": [0.1, 0.2],
    }


@pytest.mark.parametrize("draw", [draw_choices, draw_parallel_coordinates])
@pytest.mark.parametrize("count", [1, 4])
def test_a_picture(tmp_path, draw, count):
    """Of one trial too, where nothing differs."""
    path = tmp_path / "picture.png"
    draw(TRIALS[:count], "val_sequence_accuracy", path)
    assert path.read_bytes().startswith(b"\x89PNG")

import pytest
from matplotlib import image
from matplotlib.axes import Axes

from tpt_keras.visualization.comparison import draw_comparison

ROWS = [
    {"step": 1, "loss": 3.0},
    {"step": 2, "loss": 2.0, "val_sequence_accuracy": 0.25},
    {"step": 4, "loss": 1.0, "val_sequence_accuracy": 0.5},
]
OTHER = [{"step": 2, "loss": 1.5, "val_sequence_accuracy": 0.75}]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (
            "val_sequence_accuracy",
            [([2, 4], [0.25, 0.5], "a"), ([2], [0.75], "b")],
        ),
        ("loss", [([1, 2, 4], [3.0, 2.0, 1.0], "a"), ([2], [1.5], "b")]),
    ],
)
def test_draws_a_curve_for_every_training(
    tmp_path, monkeypatch, metric, expected
):
    curves = []
    plot = Axes.plot

    def record(axes, x, y, **kwargs):
        curves.append((list(x), list(y), kwargs["label"]))
        return plot(axes, x, y, **kwargs)

    monkeypatch.setattr(Axes, "plot", record)
    path = tmp_path / "comparison.png"
    draw_comparison({"module": {"a": ROWS, "b": OTHER}}, path, metric)
    assert curves == expected
    assert image.imread(path).shape[1] > 300


def test_a_diagram_for_every_title(tmp_path):
    widths = []
    for count in (1, 2):
        path = tmp_path / f"{count}.png"
        runs = {f"module {i}": {"a": ROWS} for i in range(count)}
        draw_comparison(runs, path)
        widths.append(image.imread(path).shape[1])
    assert widths[1] == 2 * widths[0]

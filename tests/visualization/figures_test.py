"""One test for each figure: it is drawn, and with the right numbers."""

import numpy as np
import pytest
from matplotlib import image
from matplotlib.axes import Axes

from tpt_keras.visualization.attention import draw_attention
from tpt_keras.visualization.attention import draw_head_tables
from tpt_keras.visualization.charts import draw_accuracy_bars
from tpt_keras.visualization.charts import draw_learning_curves
from tpt_keras.visualization.charts import draw_trainings
from tpt_keras.visualization.roles import draw_role_squares

ROWS = [
    {"step": 50, "loss": 3.5, "sequence_accuracy": 0.0},
    {
        "step": 100,
        "loss": 2.0,
        "sequence_accuracy": 0.25,
        "val_loss": 2.5,
        "val_sequence_accuracy": 0.5,
    },
]


@pytest.fixture
def calls(monkeypatch):
    """Function that records the calls of a method of `Axes`."""

    def record(name):
        recorded = []
        method = getattr(Axes, name)

        def call(axes, *args, **kwargs):
            recorded.append((args, kwargs))
            return method(axes, *args, **kwargs)

        monkeypatch.setattr(Axes, name, call)
        return recorded

    return record


@pytest.fixture
def path(tmp_path):
    """A file that has a picture at the end."""
    path = tmp_path / "figure.png"
    yield path
    assert min(image.imread(path).shape[:2]) > 100


def curves(plotted):
    return [(*map(list, args), kwargs["label"]) for args, kwargs in plotted]


def test_learning_curves(path, calls):
    plotted = calls("plot")
    draw_learning_curves(ROWS, path)
    assert curves(plotted) == [
        ([50, 100], [3.5, 2.0], "training"),
        ([100], [2.5], "validation"),
        ([50, 100], [0.0, 0.25], "training"),
        ([100], [0.5], "validation"),
    ]
    draw_learning_curves([])


def test_comparison_over_examples_and_time(path, calls):
    plotted = calls("plot")
    old = [{"step": 1, "examples": 400_000, "accuracy": 0.5}]
    new = [
        {"step": 1, "examples": 500_000, "minutes": 2, "accuracy": 0.3},
        {"step": 2, "examples": 1_000_000, "minutes": 4, "accuracy": 0.7},
    ]
    draw_trainings({"old": old, "new": new}, "accuracy", path)
    assert curves(plotted) == [
        ([400_000], [0.5], "old"),
        ([500_000, 1_000_000], [0.3, 0.7], "new"),
        # The version that trained it kept no minutes.
        ([], [], "old"),
        ([2, 4], [0.3, 0.7], "new"),
    ]


def test_attention(path, calls):
    shown, xticks = calls("imshow"), calls("set_xticks")
    weights = np.eye(3, 4)
    # Matplotlib would parse a pair of $ as a formula.
    figure = draw_attention(weights, "⊢$<", "⊢$$⊣", "title", path)
    np.testing.assert_array_equal(shown[0][0][0], weights)
    assert xticks[0][0][1] == "⊢$$⊣"
    # A notebook shows it.
    assert figure.axes[0].get_title(loc="left") == "title"


def test_head_tables(path, calls):
    written = calls("text")
    panels = {title: [[0.1, 0.9], [0.5, 1.2]] for title in "abc"}
    draw_head_tables(panels, "share", path)
    texts = [args[2] for args, _ in written]
    assert texts == ["0.10", "0.90", "0.50", "1.20"] * 3


def test_role_squares(path, calls):
    written = calls("text")
    clusters = [
        {"size": 3, "characters": [("$", 2), (" ", 1)]},
        {"size": 1, "characters": [("1", 1)]},
    ]
    draw_role_squares(["$1", "$ "], [[0, 1], [0, 0]], clusters, "title", path)
    assert [args for args, _ in written] == [
        (0, 0, "$"),
        (1, 0, "1"),
        (0, 1, "$"),
        (1, 1, " "),
        (0, 0, 0),
        (1, 0, "$ 67%  ␣ 33%"),
        (0, 1, 1),
        (1, 1, "1 100%"),
    ]


def accuracies(**modules):
    return {
        module: {"accuracy": value, "low": value - 0.1, "high": value + 0.05}
        for module, value in modules.items()
    }


def test_accuracy_bars(path, calls):
    drawn = calls("barh")
    models = {
        "one": accuracies(numbers__a=0.2, numbers__b=0.8, algebra__c=0.5),
        "two": accuracies(numbers__a=0.9, numbers__b=0.2, algebra__c=0.4),
    }
    draw_accuracy_bars(models, "A title", path)
    # By topic, the first model's best module first.
    assert [args[1] for args, _ in drawn] == [[0.5, 0.8, 0.2], [0.4, 0.2, 0.9]]
    below, above = drawn[0][1]["xerr"]
    assert below == pytest.approx([0.1] * 3)
    assert above == pytest.approx([0.05] * 3)

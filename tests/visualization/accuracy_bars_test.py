import itertools

import pytest
from matplotlib import image
from matplotlib.axes import Axes

from tpt_keras.visualization.accuracy_bars import draw_accuracy_bars
from tpt_keras.visualization.accuracy_bars import modules_by_topic


def rows(**accuracies):
    return {
        module: {"accuracy": value, "low": value - 0.1, "high": value + 0.05}
        for module, value in accuracies.items()
    }


MODELS = {
    "one": rows(numbers__gcd=0.2, numbers__lcm=0.8, algebra__linear_1d=0.5),
    "other": rows(numbers__gcd=0.9, numbers__lcm=0.2, algebra__linear_1d=0.4),
}


def test_by_topic_and_accuracy():
    assert modules_by_topic(MODELS) == {
        "algebra": ["algebra__linear_1d"],
        "numbers": ["numbers__lcm", "numbers__gcd"],
    }


def test_a_bar_for_every_module_and_model(tmp_path, monkeypatch):
    drawn = []
    barh = Axes.barh

    def record(axes, y, width, *args, xerr, **kwargs):
        drawn.append((y, width, xerr))
        return barh(axes, y, width, *args, xerr=xerr, **kwargs)

    monkeypatch.setattr(Axes, "barh", record)
    path = tmp_path / "bars.png"
    draw_accuracy_bars(MODELS, "A title", path)
    assert [width for _, width, _ in drawn] == [
        [0.5],
        [0.4],
        [0.8, 0.2],
        [0.2, 0.9],
    ]
    for _, _, (below, above) in drawn:
        assert below == pytest.approx([0.1] * len(below))
        assert above == pytest.approx([0.05] * len(above))
    # No bar lies on another.
    places = sorted(y for ys, _, _ in drawn[2:] for y in ys)
    assert min(b - a for a, b in itertools.pairwise(places)) > 0.12
    assert image.imread(path).shape[1] == 800


def test_many_modules_are_in_two_columns(tmp_path):
    names = [f"topic{n % 3}__{n}" for n in range(40)]
    models = {"model": rows(**dict.fromkeys(names, 0.5))}
    path = tmp_path / "bars.png"
    draw_accuracy_bars(models, "A title", path)
    height, width, _ = image.imread(path).shape
    assert width == 1600
    # The third topic stands beside the two others.
    assert 500 < height < 900

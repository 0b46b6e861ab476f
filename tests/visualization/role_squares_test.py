from matplotlib import image
from matplotlib.axes import Axes

from tpt_keras.visualization.role_squares import draw_role_squares


def test_every_character_is_on_its_square(tmp_path, monkeypatch):
    written = []
    text = Axes.text

    def record(axes, x, y, s, **kwargs):
        written.append((x, y, s))
        return text(axes, x, y, s, **kwargs)

    monkeypatch.setattr(Axes, "text", record)
    clusters = [
        {"cells": 3, "characters": [("$", 2), (" ", 1)]},
        {"cells": 1, "characters": [("1", 1)]},
    ]
    path = tmp_path / "roles.png"
    draw_role_squares(["$1", "$ "], [[0, 1], [0, 0]], clusters, "title", path)
    assert written[:4] == [(0, 0, "$"), (1, 0, "1"), (0, 1, "$"), (1, 1, " ")]
    assert written[4:] == [
        (0, 0, 0),
        (1, 0, "$ 67%  ␣ 33%"),
        (0, 1, 1),
        (1, 1, "1 100%"),
    ]
    assert image.imread(path).shape[0] > 100

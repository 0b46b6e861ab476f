import sys

import numpy as np
import pytest
from matplotlib import image
from matplotlib.axes import Axes

from tpt_keras.errors import UsageError
from tpt_keras.visualization.attention_maps import draw_attention
from tpt_keras.visualization.attention_maps import write_attention_page


def test_draws_a_matrix(tmp_path, monkeypatch):
    drawn = []
    imshow = Axes.imshow

    def record(axes, weights, *args, **kwargs):
        drawn.append((axes, weights))
        return imshow(axes, weights, *args, **kwargs)

    monkeypatch.setattr(Axes, "imshow", record)
    weights = np.eye(3, 4)
    path = tmp_path / "attention.png"
    # What matplotlib would take for a formula, too.
    draw_attention(weights, "⊢$<", "⊢1$⊣", "title", path)
    [(axes, shown)] = drawn
    np.testing.assert_array_equal(shown, weights)
    labels = [
        "".join(label.get_text() for label in axis.get_ticklabels())
        for axis in (axes.xaxis, axes.yaxis)
    ]
    assert labels == ["⊢1$⊣", "⊢$<"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("taken from", "asks")
    assert image.imread(path).shape[1] > 300


def test_a_page_without_plotly(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(UsageError, match=r"plotly.*tpt_keras\[analysis\]"):
        write_attention_page([], {}, tmp_path / "attention.html")

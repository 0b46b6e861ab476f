"""The figure and the page of role clusters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.colors import to_hex
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from tpt_keras.typing import StrPath
from tpt_keras.visualization.figures import CHARACTER
from tpt_keras.visualization.figures import OKABE_ITO
from tpt_keras.visualization.figures import finished
from tpt_keras.visualization.figures import page

_MAX_ROWS = 20
_MAX_COLUMNS = 70
# Inches of a square.
_SQUARE = 0.2
# Inches of a letter.
_LETTER = 0.08
_CENTERED = {"ha": "center", "va": "center", **CHARACTER}


def draw_role_squares(
    texts: Sequence[str | list[str]],
    labels: Sequence[Sequence[int]],
    clusters: list[dict[str, Any]],
    title: str,
    path: StrPath | None = None,
) -> Figure:
    """Draws every character on a square in the colour of its cluster.

    Shows the first 20 texts, up to 70 characters of each. The labels are a
    list of cluster numbers for every text, and the clusters a result of
    `describe_clusters`. A text may be a list of words and characters; a word's
    square shows its first two letters; if there are words alone, its first
    twelve. Returns the figure, and writes it to a `path`.
    """
    texts = [text[:_MAX_COLUMNS] for text in texts[:_MAX_ROWS]]
    grid = np.full((len(texts), max(map(len, texts))), np.nan)
    for row, text in enumerate(texts):
        grid[row, : len(text)] = labels[row][: len(text)]
    sizes = [len(symbol) for text in texts for symbol in text]
    letters = 2 if any(" " in text for text in texts) else min(12, max(sizes))
    width = max(_SQUARE, _LETTER * letters)
    colors = _colors(len(clusters))
    height = _SQUARE * max(len(texts), len(clusters)) + 1.2
    figure = Figure(
        figsize=(width * grid.shape[1] + 3.6, height),
        dpi=85,
        layout="constrained",
    )
    axes, key = figure.subplots(1, 2, width_ratios=[grid.shape[1] * width, 2.2])
    axes.imshow(
        grid,
        ListedColormap([color["background"] for color in colors]),
        vmin=-0.5,
        vmax=len(colors) - 0.5,
        aspect=_SQUARE / width,
    )
    for row, text in enumerate(texts):
        for column, character in enumerate(text):
            color = colors[labels[row][column]]["text"]
            shown = character[:letters]
            axes.text(column, row, shown, color=color, **_CENTERED)
    axes.set_anchor("NW")
    axes.set_title(title, loc="left")
    axes.set_xlabel("token")
    axes.set_ylabel("problem")
    axes.set_xticks(
        range(9, grid.shape[1], 10), range(10, grid.shape[1] + 1, 10)
    )
    axes.set_yticks(range(len(texts)), range(1, len(texts) + 1), fontsize=8)
    axes.spines[:].set_visible(False)
    _draw_key(key, clusters, colors)
    return finished(figure, path)


def _draw_key(axes, clusters, colors):
    """Draws the clusters' colours and their most frequent characters."""
    axes.set_title("clusters", loc="left")
    axes.axis("off")
    axes.imshow(
        [[index] for index in range(len(clusters))],
        ListedColormap([color["background"] for color in colors]),
        extent=(-0.5, 0.5, len(clusters) - 0.5, -0.5),
    )
    axes.set_aspect("equal", anchor="NW")
    axes.set_xlim(-0.5, 9)
    for row, cluster in enumerate(clusters):
        axes.text(0, row, row, color=colors[row]["text"], **_CENTERED)
        shares = "  ".join(
            f"{character.replace(' ', '␣')} {count / cluster['size']:.0%}"
            for character, count in cluster["characters"][:3]
        )
        axes.text(1, row, shares, va="center", fontsize=8, parse_math=False)


def _colors(count):
    """Returns a background and a legible text colour for every cluster.

    Seven colours, then the same paler, then darker.
    """
    full = np.array([to_rgb(color) for color in (*OKABE_ITO, "#F0E442")])
    palette = np.concatenate([full, (full + 1) / 2, full / 2])
    return [
        {
            "background": to_hex(color),
            "text": "white" if color @ (0.3, 0.6, 0.1) < 0.5 else "black",
        }
        for color in np.resize(palette, (count, 3))
    ]


def role_page(
    texts: Sequence[str | list[str]],
    labels: Sequence[Sequence[int]],
    clusters: list[dict[str, Any]],
    title: str,
    summary: str,
) -> str:
    """Returns a page of HTML with the clusters of all texts.

    See `draw_role_squares`. The summary is a text below the title.
    """
    data = {
        "title": title,
        "summary": summary,
        "texts": texts,
        "labels": labels,
        "clusters": clusters,
        "colors": _colors(len(clusters)),
    }
    return page("roles", data)

"""Figures and the page of attention weights, and tables of heads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from tpt_keras.typing import StrPath
from tpt_keras.visualization.figures import CHARACTER
from tpt_keras.visualization.figures import finished
from tpt_keras.visualization.figures import page

# Each attention's title, and the texts of its targets and sources.
ATTENTIONS = {
    "encoder": ("in the question (encoder)", "question", "question"),
    "decoder": ("in the answer (decoder)", "answer", "answer"),
    "cross": (
        "from the answer to the question (cross-attention)",
        "answer",
        "question",
    ),
}
# Colours follow this power of a weight, which shows small weights.
_GAMMA = 0.7
# Inches of a matrix entry.
_ENTRY = 0.17
# Letters of a word.
_LONGEST_WORD = 20


def draw_attention(
    weights: np.ndarray | Sequence[Sequence[float]],
    targets: str | Sequence[str],
    sources: str | Sequence[str],
    title: str,
    path: StrPath | None = None,
) -> Figure:
    """Draws one head's attention weights `(targets, sources)` as a matrix.

    The targets and the sources are strings, the characters of both, or lists
    of words and characters. Returns the figure, and writes it to a `path`.
    """
    targets, sources = map(_shortened, (targets, sources))
    width = max(_ENTRY * len(sources), 3.0) + 1.8
    height = max(_ENTRY * len(targets), 1.2) + 1.2
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        weights, "Blues", norm=PowerNorm(_GAMMA, 0.0, 1.0), aspect="auto"
    )
    rotation = 90 * (max(map(len, sources)) > 1)  # of words
    axes.set_xticks(
        range(len(sources)), sources, rotation=rotation, **CHARACTER
    )
    axes.set_yticks(range(len(targets)), targets, **CHARACTER)
    axes.tick_params(which="both", length=0)
    axes.set_xticks([x - 0.5 for x in range(len(sources))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(len(targets))], minor=True)
    axes.grid(which="minor", color="#ddd", linewidth=0.5)
    axes.set_xlabel("attended to (keys)")
    axes.set_ylabel("attends (queries)")
    axes.set_title(title, fontsize=10, loc="left")
    figure.colorbar(
        image, label="attention weight", ticks=[0, 0.1, 0.25, 0.5, 1]
    )
    return finished(figure, path)


def _shortened(texts):
    # Long words would leave no room for the matrix.
    is_list = not isinstance(texts, str)
    return [text[:_LONGEST_WORD] for text in texts] if is_list else texts


def attention_page(
    problems: list[dict[str, Any]], shown: dict[str, Any]
) -> str:
    """Returns a page of HTML with the attention weights of every head.

    The problems are results of `attention_weights`. Shown first are the
    `attention`, and the indices of `layer` and `head`, of the dict `shown`.
    """
    data = {
        "problems": problems,
        "attentions": [[name, *each] for name, each in ATTENTIONS.items()],
        "shown": shown,
        "gamma": _GAMMA,
    }
    return page("attention", data)


def draw_head_tables(
    panels: dict[str, Any], label: str, path: StrPath | None = None
) -> Figure:
    """Draws one number per head and layer, in panels side by side.

    The panels are a dict from titles to nested lists `(num_layers,
    num_heads)` of numbers from 0 to 1. Returns the figure, and writes it to a
    `path`.
    """
    tables = {title: np.asarray(table) for title, table in panels.items()}
    num_layers, num_heads = next(iter(tables.values())).shape
    columns = len(tables) if len(tables) <= 3 else 2
    rows = -(-len(tables) // columns)
    width = columns * (0.48 * num_heads + 0.6) + 1.4
    height = rows * (0.38 * num_layers + 0.7) + 0.5
    figure = Figure(figsize=(width, height), dpi=90, layout="constrained")
    grid = figure.subplots(
        rows, columns, squeeze=False, sharex=True, sharey=True
    )
    for axes in grid.flat[len(tables) :]:
        axes.remove()
    for axes, (title, table) in zip(grid.flat, tables.items()):
        image = axes.imshow(table, "viridis", vmin=0.0, vmax=1.0, aspect="auto")
        for (layer, head), value in np.ndenumerate(table):
            color = "black" if value > 0.6 else "white"
            style = {"ha": "center", "va": "center", "fontsize": 8}
            axes.text(head, layer, f"{value:.2f}", color=color, **style)
        axes.set_title(title, fontsize=10)
        axes.set_xticks(range(num_heads), range(1, num_heads + 1))
        axes.set_yticks(range(num_layers), range(1, num_layers + 1))
        axes.tick_params(length=0)
    figure.supxlabel("head", fontsize=10)
    figure.supylabel("layer", fontsize=10)
    figure.colorbar(image, ax=grid, label=label)
    return finished(figure, path)

"""Figures and the page of attention weights, and tables of heads."""

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from tpt_keras.visualization.page import page

# Each attention's title, and the texts of its targets and sources.
ATTENTIONS = {
    "encoder": {
        "title": "in the question (encoder)",
        "targets": "question",
        "sources": "question",
    },
    "decoder": {
        "title": "in the answer (decoder)",
        "targets": "answer",
        "sources": "answer",
    },
    "cross": {
        "title": "from the answer to the question (cross-attention)",
        "targets": "answer",
        "sources": "question",
    },
}
_COLORS = "Blues"
# Colours follow this power of a weight, which shows small weights.
_GAMMA = 0.7
# Inches of a matrix entry.
_ENTRY = 0.17
_MAX_PANELS_IN_ROW = 3


def draw_attention(weights, targets, sources, title, path):
    """Draws one head's attention weights as a matrix.

    Args:
        weights: Array `(target_length, source_length)`.
        targets: The characters of the queries, a string.
        sources: The characters of the keys, a string.
        title: The figure's title.
        path: PNG file to write.
    """
    size = (
        max(_ENTRY * len(sources), 3.0) + 1.8,
        max(_ENTRY * len(targets), 1.2) + 1.2,
    )
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(
        weights, _COLORS, norm=PowerNorm(_GAMMA, 0.0, 1.0), aspect="auto"
    )
    style = {"family": "monospace", "fontsize": 9, "parse_math": False}
    axes.set_xticks(range(len(sources)), sources, **style)
    axes.set_yticks(range(len(targets)), targets, **style)
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
    figure.savefig(path, dpi=110)


def attention_page(problems, shown):
    """Returns a page of HTML with the attention weights of every head.

    Args:
        problems: List of dicts, results of `attention_weights`.
        shown: Dict of the `attention`, and the indices of `layer` and `head`,
            that are shown first.

    Returns:
        The page's text.
    """
    attentions = [{"name": name, **each} for name, each in ATTENTIONS.items()]
    data = {
        "problems": problems,
        "attentions": attentions,
        "shown": shown,
        "gamma": _GAMMA,
    }
    return page("attention", data)


def draw_head_tables(panels, label, path):
    """Draws one number per head and layer, in panels side by side.

    Args:
        panels: Dict from titles to nested lists `(num_layers, num_heads)` of
            numbers from 0 to 1.
        label: Label of the numbers.
        path: PNG file to write.
    """
    tables = {title: np.asarray(table) for title, table in panels.items()}
    num_layers, num_heads = next(iter(tables.values())).shape
    columns = len(tables) if len(tables) <= _MAX_PANELS_IN_ROW else 2
    rows = -(-len(tables) // columns)
    size = (
        columns * (0.48 * num_heads + 0.6) + 1.4,
        rows * (0.38 * num_layers + 0.7) + 0.5,
    )
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(
        rows, columns, squeeze=False, sharex=True, sharey=True
    )
    for axes in grid.flat[len(tables) :]:
        axes.remove()
    for axes, (title, table) in zip(grid.flat, tables.items()):
        image = axes.imshow(table, "viridis", vmin=0.0, vmax=1.0, aspect="auto")
        for (layer, head), value in np.ndenumerate(table):
            axes.text(
                head,
                layer,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=8,
                color="black" if value > 0.6 else "white",
            )
        axes.set_title(title, fontsize=10)
        axes.set_xticks(range(num_heads), range(1, num_heads + 1))
        axes.set_yticks(range(num_layers), range(1, num_layers + 1))
        axes.tick_params(length=0)
    figure.supxlabel("head", fontsize=10)
    figure.supylabel("layer", fontsize=10)
    figure.colorbar(image, ax=grid, label=label)
    figure.savefig(path, dpi=90)

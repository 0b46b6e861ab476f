from matplotlib import colormaps
from matplotlib.colors import PowerNorm
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tpt_keras.visualization.page import page
from tpt_keras.visualization.page import plotly_library
from tpt_keras.visualization.page import write_page

# What they are called, and in which text their targets and sources are.
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
# Colours go with this power of a weight, so that small ones are seen.
_GAMMA = 0.7
_STEPS = 16
# Inches of a cell.
_CELL = 0.17


def draw_attention(weights, targets, sources, title, path):
    """Draws one head's attention weights as a matrix.

    Args:
        weights: Array `(target_length, source_length)`.
        targets: The characters that ask, a string.
        sources: The characters that they take from.
        title: The picture's title.
        path: PNG file to write.
    """
    size = (
        max(_CELL * len(sources), 3.0) + 1.8,
        max(_CELL * len(targets), 1.2) + 1.2,
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
    axes.set_xlabel("taken from")
    axes.set_ylabel("asks")
    axes.set_title(title, fontsize=10, loc="left")
    figure.colorbar(
        image, label="attention weight", ticks=[0, 0.1, 0.25, 0.5, 1]
    )
    figure.savefig(path, dpi=110)


def attention_page(problems, shown):
    """A page of HTML that shows the weights of every head on hovering.

    Args:
        problems: List of dicts, as `attention_weights` gives them.
        shown: Dict of the `attention`, and the indices of `layer` and `head`,
            to be shown first.

    Returns:
        The page's text.

    Raises:
        UsageError: If plotly is not installed.
    """
    library = plotly_library()
    steps = [index / _STEPS for index in range(_STEPS + 1)]
    data = {
        "problems": problems,
        "attentions": [
            {"name": name, **each} for name, each in ATTENTIONS.items()
        ],
        "shown": shown,
        "colors": [
            (step ** (1 / _GAMMA), to_hex(colormaps[_COLORS](step)))
            for step in steps
        ],
    }
    return page("attention", data, library)


def write_attention_page(problems, shown, path):
    """Writes what `attention_page` gives.

    Args:
        problems: See `attention_page`.
        shown: See there.
        path: HTML file to write.

    Raises:
        UsageError: See there.
    """
    write_page(attention_page(problems, shown), path)

from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy import full

from tpt_keras.visualization.page import page
from tpt_keras.visualization.page import write_page

# The saturated ones first, for the largest clusters.
_PALETTE = (*range(0, 20, 2), *range(1, 20, 2))
_MAX_ROWS = 20
_MAX_COLUMNS = 70
# Inches of a square.
_SQUARE = 0.2


def draw_role_squares(texts, labels, clusters, title, path):
    """Draws texts, every character on a square in its cluster's colour.

    The first texts alone, and of a long one its beginning.

    Args:
        texts: List of strings.
        labels: List of as many sequences of the characters' clusters.
        clusters: List of a dict for every cluster, with its `cells`, their
            number, and its most frequent `characters` with their numbers.
        title: The picture's title.
        path: PNG file to write.
    """
    texts = [text[:_MAX_COLUMNS] for text in texts[:_MAX_ROWS]]
    grid = full((len(texts), max(map(len, texts))), float("nan"))
    for row, text in enumerate(texts):
        grid[row, : len(text)] = labels[row][: len(text)]
    colors = _colors(len(clusters))
    height = _SQUARE * max(len(texts), len(clusters)) + 1.2
    figure = Figure(
        figsize=(_SQUARE * grid.shape[1] + 3.6, height), layout="constrained"
    )
    axes, key = figure.subplots(
        1, 2, width_ratios=[grid.shape[1] * _SQUARE, 2.2]
    )
    axes.imshow(
        grid,
        ListedColormap([color["background"] for color in colors]),
        vmin=-0.5,
        vmax=len(colors) - 0.5,
    )
    for row, text in enumerate(texts):
        for column, character in enumerate(text):
            color = colors[labels[row][column]]["text"]
            _write(axes, column, row, character, color)
    axes.set_anchor("NW")
    axes.set_title(title, loc="left")
    axes.set_xlabel("character")
    axes.set_ylabel("problem")
    axes.set_xticks(
        range(9, grid.shape[1], 10), range(10, grid.shape[1] + 1, 10)
    )
    axes.set_yticks(range(len(texts)), range(1, len(texts) + 1), fontsize=8)
    axes.spines[:].set_visible(False)
    _draw_key(key, clusters, colors)
    figure.savefig(path, dpi=85)


def _draw_key(axes, clusters, colors):
    """The colours' clusters, each with what it is mostly of."""
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
        _write(axes, 0, row, row, colors[row]["text"])
        shares = "  ".join(
            f"{character.replace(' ', '␣')} {count / cluster['cells']:.0%}"
            for character, count in cluster["characters"][:3]
        )
        axes.text(1, row, shares, va="center", fontsize=8, parse_math=False)


def _write(axes, column, row, text, color):
    axes.text(
        column,
        row,
        text,
        color=color,
        ha="center",
        va="center",
        family="monospace",
        fontsize=9,
        parse_math=False,
    )


def _colors(count):
    """A colour for every cluster, and one that is read on it."""
    colors = []
    for index in range(count):
        color = colormaps["tab20"](_PALETTE[index % len(_PALETTE)])
        brightness = color[0] * 0.3 + color[1] * 0.6 + color[2] * 0.1
        colors.append(
            {
                "background": to_hex(color),
                "text": "white" if brightness < 0.5 else "black",
            }
        )
    return colors


def role_page(texts, labels, clusters, title, summary):
    """What `draw_role_squares` draws, as a page of HTML to hover over.

    Args:
        texts: List of strings.
        labels: See `draw_role_squares`.
        clusters: See there; with the `contexts` too.
        title: The page's title.
        summary: A text below it.

    Returns:
        The page's text.
    """
    data = {
        "title": title,
        "summary": summary,
        "texts": texts,
        "labels": [list(map(int, row)) for row in labels],
        "clusters": clusters,
        "colors": _colors(len(clusters)),
    }
    return page("roles", data)


def write_role_page(texts, labels, clusters, title, summary, path):
    """Writes what `role_page` gives.

    Args:
        texts: See `draw_role_squares`.
        labels: See there.
        clusters: See `role_page`.
        title: See there.
        summary: See there.
        path: HTML file to write.
    """
    write_page(role_page(texts, labels, clusters, title, summary), path)

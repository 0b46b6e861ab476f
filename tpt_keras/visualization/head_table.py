import numpy as np
from matplotlib.figure import Figure

_MAX_IN_ROW = 3


def draw_head_tables(panels, label, path):
    """Draws a number of every head and layer, in panels side by side.

    Args:
        panels: Dict of a title to a nested list `(num_layers, num_heads)`, of
            numbers from 0 to 1.
        label: What the numbers are.
        path: PNG file to write.
    """
    tables = {title: np.asarray(table) for title, table in panels.items()}
    num_layers, num_heads = next(iter(tables.values())).shape
    columns = len(tables) if len(tables) <= _MAX_IN_ROW else 2
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

import numpy as np
from matplotlib.figure import Figure


def draw_head_tables(panels, label, path):
    """Draws a number of every head and layer, in panels beside each other.

    Args:
        panels: Dict of a title to a nested list `(num_layers, num_heads)`, of
            numbers from 0 to 1.
        label: What the numbers are.
        path: PNG file to write.
    """
    tables = {title: np.asarray(table) for title, table in panels.items()}
    num_layers, num_heads = next(iter(tables.values())).shape
    figure = Figure(
        figsize=(
            len(tables) * (0.48 * num_heads + 0.6) + 1.4,
            0.42 * num_layers + 1.4,
        ),
        layout="constrained",
    )
    [row] = figure.subplots(1, len(tables), squeeze=False, sharey=True)
    for axes, (title, table) in zip(row, tables.items()):
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
        axes.set_xlabel("head")
        axes.set_xticks(range(num_heads), range(1, num_heads + 1))
        axes.set_yticks(range(num_layers), range(1, num_layers + 1))
        axes.tick_params(length=0)
    row[0].set_ylabel("layer")
    figure.colorbar(image, ax=row, label=label)
    figure.savefig(path, dpi=100)

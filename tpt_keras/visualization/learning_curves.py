import csv
import pathlib

from matplotlib.figure import Figure


def draw_learning_curves(history_path, steps_per_row, last_step, path):
    """Draws loss and accuracy over time.

    Args:
        history_path: The training's `history.csv`, a row an evaluation.
        steps_per_row: Optimizer steps between two rows.
        last_step: Step of the last row, which may be nearer.
        path: PNG file to write.
    """
    with pathlib.Path(history_path).open() as file:
        rows = list(csv.DictReader(file))
    steps = [
        min(steps_per_row * (int(row["epoch"]) + 1), last_step) for row in rows
    ]
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    loss_axes, accuracy_axes = figure.subplots(1, 2)
    for axes, metric, label in (
        (loss_axes, "loss", "loss (nats per token)"),
        (accuracy_axes, "sequence_accuracy", "answers entirely right"),
    ):
        for column, name in ((metric, "training"), (f"val_{metric}", "unseen")):
            axes.plot(
                steps,
                [float(row[column]) for row in rows],
                marker="o",
                markersize=3,
                label=name,
            )
        axes.set_xlabel("optimizer steps")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
    loss_axes.set_ylim(bottom=0)
    accuracy_axes.set_ylim(0, 1.02)
    figure.savefig(path, dpi=120)

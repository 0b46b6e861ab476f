from matplotlib.figure import Figure


def draw_learning_curves(rows, path):
    """Draws loss and accuracy over time.

    Args:
        rows: The training's metrics, as `read_metrics` returns them.
        path: PNG file to write.
    """
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    loss_axes, accuracy_axes = figure.subplots(1, 2)
    accuracy = ("sequence_accuracy", "answers entirely right")
    if any("bits_per_character" in row for row in rows):
        accuracy = ("token_accuracy", "characters foreseen")
    for axes, metric, label in (
        (loss_axes, "loss", "loss (nats per token)"),
        (accuracy_axes, *accuracy),
    ):
        for name, series in ((metric, "training"), (f"val_{metric}", "unseen")):
            points = [(row["step"], row[name]) for row in rows if name in row]
            axes.plot(
                [step for step, _ in points],
                [value for _, value in points],
                marker="o",
                markersize=3,
                label=series,
            )
        axes.set_xlabel("optimizer steps")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
    loss_axes.set_ylim(bottom=0)
    accuracy_axes.set_ylim(0, 1.02)
    figure.savefig(path, dpi=120)

"""Figures of metrics: learning curves, and comparisons of trainings."""

from matplotlib.figure import Figure


def draw_learning_curves(rows, path):
    """Draws a training's loss and accuracy over its steps.

    Args:
        rows: The training's metrics, as `read_metrics` returns them.
        path: PNG file to write.
    """
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    loss_axes, accuracy_axes = figure.subplots(1, 2)
    accuracy = ("sequence_accuracy", "answers entirely right")
    if any("bits_per_character" in row for row in rows):
        accuracy = ("token_accuracy", "characters predicted right")
    for axes, metric, label in (
        (loss_axes, "loss", "loss (nats per token)"),
        (accuracy_axes, *accuracy),
    ):
        _draw_curve(axes, rows, metric, "training")
        _draw_curve(axes, rows, f"val_{metric}", "validation")
        _label(axes, label)
    loss_axes.set_ylim(bottom=0)
    accuracy_axes.set_ylim(0, 1.02)
    figure.savefig(path, dpi=120)


def draw_comparison(runs, path, metric="val_sequence_accuracy"):
    """Draws one metric of several trainings over their steps.

    Args:
        runs: Dict from titles, one panel each, to dicts from trainings' names
            to their metrics, as `read_metrics` returns them.
        path: PNG file to write.
        metric: Name of the metric.
    """
    figure = Figure(figsize=(4.5 * len(runs), 3.5), layout="constrained")
    [panels] = figure.subplots(1, len(runs), squeeze=False)
    for axes, (title, trainings) in zip(panels, runs.items()):
        for name, rows in trainings.items():
            _draw_curve(axes, rows, metric, name)
        axes.set_title(title)
        _label(axes, metric, fontsize="small")
    figure.savefig(path, dpi=120)


def _draw_curve(axes, rows, metric, label):
    points = [(row["step"], row[metric]) for row in rows if metric in row]
    steps = [step for step, _ in points]
    values = [value for _, value in points]
    axes.plot(steps, values, marker="o", markersize=3, label=label)


def _label(axes, metric, **legend):
    axes.set_xlabel("optimizer steps")
    axes.set_ylabel(metric)
    axes.grid(alpha=0.3)
    axes.legend(**legend)

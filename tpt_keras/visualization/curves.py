"""Figures of metrics: learning curves, comparisons, searches."""

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


def draw_comparison(trainings, path, metric="val_sequence_accuracy"):
    """Draws one metric of several trainings over their steps.

    Args:
        trainings: Dict from names to metrics, as `read_metrics` returns them.
        path: PNG file to write.
        metric: Name of the metric.
    """
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for name, rows in trainings.items():
        _draw_curve(axes, rows, metric, name)
    _label(axes, metric, fontsize="small")
    figure.savefig(path, dpi=120)


def draw_choices(trials, objective, path):
    """Draws the score over each hyperparameter that differs, one panel each.

    A dot is a trial. A bar is the mean of the trials with the same value.

    Args:
        trials: List of dicts with `hyperparameters`, a dict, and `score`.
        objective: Name of the score.
        path: PNG file to write.
    """
    scores = {}
    for trial in trials:
        for name, value in trial["hyperparameters"].items():
            by_value = scores.setdefault(name, {})
            by_value.setdefault(value, []).append(trial["score"])
    differing = {name: each for name, each in scores.items() if len(each) > 1}
    rows = max(1, -(-len(differing) // 3))
    figure = Figure(figsize=(12, 3 * rows), layout="constrained")
    panels = list(figure.subplots(rows, 3, squeeze=False, sharey=True).flat)
    for axes, (name, by_value) in zip(panels, differing.items()):
        for place, value in enumerate(sorted(by_value)):
            found = by_value[value]
            mean = sum(found) / len(found)
            axes.plot([place] * len(found), found, "o", alpha=0.6)
            axes.plot([place - 0.2, place + 0.2], [mean] * 2, color="black")
        labels = [
            value if isinstance(value, str) else f"{value:.3g}"
            for value in sorted(by_value)
        ]
        axes.set_xticks(range(len(labels)), labels, rotation=15)
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    for axes in panels[len(differing) :]:
        axes.remove()
    figure.supylabel(objective)
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

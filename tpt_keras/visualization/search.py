"""Figures of a hyperparameter search."""

import math

from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

_MAX_COLUMNS = 3


def draw_choices(trials, objective, path):
    """Draws the score over each hyperparameter, one panel each.

    A dot is a trial. A bar is the mean of the trials with the same value.

    Args:
        trials: List of dicts with `hyperparameters`, a dict, and `score`.
        objective: Name of the score.
        path: PNG file to write.
    """
    values = searched_values(trials)
    columns = max(1, min(len(values), _MAX_COLUMNS))
    rows = max(1, -(-len(values) // columns))
    figure = Figure(figsize=(4 * columns, 3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True)
    panels = list(panels.flat)
    for axes, (name, known) in zip(panels, values.items()):
        points = [
            (trial["hyperparameters"][name], trial["score"])
            for trial in trials
            if name in trial["hyperparameters"]
        ]
        if _is_logarithmic(name):
            axes.semilogx(*zip(*points), "o", alpha=0.6)
        else:
            _draw_groups(axes, points, known)
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    for axes in panels[len(values) :]:
        axes.remove()
    figure.supylabel(objective)
    figure.savefig(path, dpi=120)


def _draw_groups(axes, points, known):
    """Draws the trials' dots by value, and each value's mean."""
    axes.plot(
        [known.index(value) for value, _ in points],
        [score for _, score in points],
        "o",
        alpha=0.6,
    )
    for place, value in enumerate(known):
        scores = [score for chosen, score in points if chosen == value]
        axes.plot(
            [place - 0.2, place + 0.2],
            [sum(scores) / len(scores)] * 2,
            color="black",
        )
    axes.set_xlim(-0.5, len(known) - 0.5)
    turn = 20 if isinstance(known[0], str) and len(known) > 2 else 0
    axes.set_xticks(range(len(known)), map(str, known), rotation=turn)


def draw_parallel_coordinates(trials, objective, path):
    """Draws every trial as a line through its hyperparameters to its score.

    Args:
        trials: List of dicts with `hyperparameters`, a dict, and `score`.
        objective: Name of the score, the last axis and the colour.
        path: PNG file to write.
    """
    values = searched_values(trials)
    scores = [trial["score"] for trial in trials]
    names = [*values, objective]
    figure = Figure(figsize=(1.8 * len(names) + 2, 4), layout="constrained")
    axes = figure.subplots()
    scale = Normalize(min(scores), max(scores))
    colors = colormaps["viridis"]
    for trial in trials:
        chosen = trial["hyperparameters"]
        points = [
            (place, _height(name, chosen[name], known))
            for place, (name, known) in enumerate(values.items())
            if name in chosen
        ]
        points.append((len(values), float(scale(trial["score"]))))
        axes.plot(*zip(*points), color=colors(scale(trial["score"])), alpha=0.7)
    for place, (name, known) in enumerate(values.items()):
        axes.axvline(place, color="gray", linewidth=0.8)
        shown = [known[0], known[-1]] if _is_logarithmic(name) else known
        for value in shown:
            text = f"{value:.3g}" if isinstance(value, float) else str(value)
            axes.text(place, _height(name, value, known), text, fontsize=8)
    axes.axvline(len(values), color="gray", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, rotation=15)
    axes.set_yticks([])
    figure.colorbar(ScalarMappable(scale, colors), ax=axes, label=objective)
    figure.savefig(path, dpi=120)


def _height(name, value, known):
    """Returns the position of a value on its axis, from 0 to 1."""
    if _is_logarithmic(name):
        low, high = math.log(known[0]), math.log(known[-1])
        return (math.log(value) - low) / (high - low)
    return known.index(value) / (len(known) - 1)


def _is_logarithmic(name):
    return name.endswith("learning_rate")


def searched_values(trials):
    """Returns the hyperparameters that differ among trials.

    Args:
        trials: List of dicts with `hyperparameters`, a dict.

    Returns:
        Dict from names to sorted lists of values.
    """
    values = {}
    for trial in trials:
        for name, value in trial["hyperparameters"].items():
            values.setdefault(name, set()).add(value)
    return {
        name: sorted(known) for name, known in values.items() if len(known) > 1
    }

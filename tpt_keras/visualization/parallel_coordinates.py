import math

from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from tpt_keras.visualization.search_choices import is_rate
from tpt_keras.visualization.search_choices import searched_values


def draw_parallel_coordinates(trials, objective, path):
    """Draws every trial as a line through its hyperparameters to its score.

    Args:
        trials: List of dicts with `hyperparameters`, a dict, and `score`.
        objective: Name of the score, the last of the axes and the color.
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
        shown = [known[0], known[-1]] if is_rate(name) else known
        for value in shown:
            text = f"{value:.3g}" if isinstance(value, float) else str(value)
            axes.text(place, _height(name, value, known), text, fontsize=8)
    axes.axvline(len(values), color="gray", linewidth=0.8)
    axes.set_xticks(range(len(names)), names, rotation=15)
    axes.set_yticks([])
    figure.colorbar(ScalarMappable(scale, colors), ax=axes, label=objective)
    figure.savefig(path, dpi=120)


def _height(name, value, known):
    """Where a value stands on its axis, from 0 to 1."""
    if is_rate(name):
        low, high = math.log(known[0]), math.log(known[-1])
        return (math.log(value) - low) / (high - low)
    return known.index(value) / (len(known) - 1)

"""Charts of accuracies and trainings, and a report's tables."""

import textwrap
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from matplotlib.ticker import MultipleLocator
from matplotlib.ticker import PercentFormatter

from tpt_keras.typing import StrPath
from tpt_keras.visualization.figures import OKABE_ITO
from tpt_keras.visualization.figures import finished
from tpt_keras.visualization.figures import markdown_table

# Inches of a bar and of the gap between two modules.
_BAR, _GAP = 0.13, 0.1
_COLORS = (*OKABE_ITO, "#000000")
# One fewer, so that a color comes back with another marker.
_MARKERS = "os^Dv<"
# 15.4M
_SHORT = EngFormatter(places=1, sep="")
REACHED_NOTE = (
    "The examples seen and the time of a training, its evaluations included, "
    "until an evaluation first found this mean accuracy of the modules of the "
    "first split for evaluation, on the training's "
    "`evaluation_examples` of each."
)
# The panels of `draw_trainings`.
_OVER = {"examples": "examples seen", "minutes": "minutes of training"}


def draw_learning_curves(
    rows: list[dict[str, Any]], path: StrPath | None = None
) -> Figure:
    """Draws a training's loss and accuracy over its steps.

    The rows are its metrics, as `read_metrics` returns them. Returns the
    figure, and writes it to a `path`.
    """
    figure = Figure(figsize=(9, 3.5), dpi=120, layout="constrained")
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
        axes.set_xlabel("optimizer steps")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
    loss_axes.set_ylim(bottom=0)
    accuracy_axes.set_ylim(0, 1.02)
    return finished(figure, path)


def draw_trainings(
    trainings: dict[str, list[dict[str, Any]]], metric: str, path: StrPath
) -> Figure:
    """Draws an accuracy of trainings over the examples and the minutes.

    Args:
        trainings: Dict from names to rows, see `training_curves`.
        metric: Name of the accuracy.
        path: PNG file to write.

    Returns:
        The figure.
    """
    many = len(trainings) > 4
    figure = Figure(figsize=(15 + 3 * many, 5), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(_OVER), sharey=True)
    for axes, (over, label) in zip(panels, _OVER.items()):
        for index, (name, rows) in enumerate(trainings.items()):
            style = {
                "color": _COLORS[index % len(_COLORS)],
                "marker": _MARKERS[index % len(_MARKERS)],
                "linestyle": "-" if index < len(_COLORS) else "--",
            }
            _draw_curve(axes, rows, metric, name, over, **style)
        axes.set_xlim(left=0)
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    panels[0].xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[0].set_ylabel(metric)
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0))
    panels[0].set_ylim(bottom=0)
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside right center" if many else "outside upper center",
        frameon=False,
    )
    return finished(figure, path)


def _draw_curve(axes, rows, metric, label, over="step", **style):
    rows = [row for row in rows if metric in row and over in row]
    x = [row[over] for row in rows]
    values = [row[metric] for row in rows]
    style = {"marker": "o", "markersize": 3, "label": label, **style}
    axes.plot(x, values, **style)


def markdown_report(report: dict[str, Any]) -> str:
    """Returns a report's table and its notes in Markdown.

    Args:
        report: Dict of `models`, `published` and `means` (of seeds), lists of
            rows with `name`, `weights`, `step` and `splits`; `problems` with
            the names of the `splits` and the number of `examples`; and
            `reached`, see `times_to`.
    """
    splits = report["problems"]["splits"]
    header = ["model", "weights", "steps"]
    for split in splits:
        header += [split, ">95%"]
    rows = [*report["means"], *report["models"], *report["published"]]
    parts = [markdown_table(header, [_row(each, splits) for each in rows])]
    parts += [textwrap.fill(note, 80) for note in _notes(report)]
    if report["reached"]:
        parts += [_reached_table(report["reached"])]
        parts += [textwrap.fill(REACHED_NOTE, 80)]
    return "\n\n".join(parts) + "\n"


def _reached_table(reached):
    levels = dict.fromkeys(each["level"] for each in reached)
    rows = {}
    for each in reached:
        text = _time(each["row"]) if each["row"] else "not reached"
        rows.setdefault(each["name"], []).append(text)
    header = ["training", *(f"to {level:.0%}" for level in levels)]
    return markdown_table(header, [[n, *cells] for n, cells in rows.items()])


def _time(row):
    # 15.4M examples, 7.2 minutes
    forms = {"examples": _SHORT, "minutes": "{:.1f}".format}
    return ", ".join(
        f"{form(row[name])} {name}"
        for name, form in forms.items()
        if name in row
    )


def _row(row, splits):
    name = row["name"]
    if "source" in row:
        name += f" (published: {row['source']})"
    steps = "-" if row["step"] is None else f"{row['step']:,}"
    cells = [name, _SHORT(row["weights"]), steps]
    for split in splits:
        result = row["splits"].get(split, {})
        accuracy, solved = "-", str(result.get("solved", "-"))
        if result:
            accuracy = f"{result['accuracy']:.2%}"
        if "low" in result:
            accuracy += f" ({result['low']:.1%} to {result['high']:.1%})"
            solved += f" of {result['modules']}"
        cells += [accuracy, solved]
    return cells


def _notes(report):
    problems = report["problems"]
    notes = [
        "An answer is right if all its tokens are, as greedy decoding "
        "gives them. An accuracy is the mean over modules, each with the same "
        f"weight, of at most {problems['examples']} problems per module, the "
        "same for all models. The 95% confidence interval is in brackets "
        "(MOVER of the modules' Wilson intervals).",
        ">95%: modules with an accuracy above 95%.",
    ]
    if report["published"]:
        notes.append(
            "Published rows are the paper's figures, of all 56 modules and of "
            "its own splits. They were not computed here."
        )
    if report["means"]:
        notes.append(
            "Means of seeds have the lowest and the highest seed in brackets. "
            "With few seeds, rows with overlapping brackets do not differ."
        )
    if "train" in problems["splits"]:
        notes.append(
            "train: problems of the training splits, from the end that a "
            "training reserves for validation last (see docs/report.md)."
        )
    for model in report["models"]:
        for split, result in model["splits"].items():
            if result["unread"]:
                notes.append(
                    f"{model['name']} cannot read {result['unread']} of the "
                    f"{result['examples']} questions of {split}, for their "
                    "length or an unknown symbol. They count as wrong."
                )
    return notes


def draw_accuracy_bars(
    accuracies: dict[str, dict[str, dict[str, float]]],
    title: str,
    path: StrPath | None = None,
) -> Figure:
    """Draws a bar with its confidence interval for every module and model.

    The accuracies are a dict from models' names to dicts from modules, the
    same of all models, to rows with `accuracy`, `low` and `high`. Modules are
    sorted by topic, and in a topic by accuracy. Returns the figure, and writes
    it to a `path`.
    """
    first = next(iter(accuracies.values()))
    modules = sorted(
        first, key=lambda name: (name.split("__")[0], -first[name]["accuracy"])
    )
    row = _BAR * len(accuracies) + _GAP
    height = row * len(modules)
    figure = Figure(
        figsize=(8.0, height + 0.25 * len(accuracies) + 1.2),
        dpi=100,
        layout="constrained",
    )
    axes = figure.subplots()
    for number, (name, rows) in enumerate(accuracies.items()):
        shown = [rows[module] for module in modules]
        values = [each["accuracy"] for each in shown]
        start = _GAP / 2 + _BAR * (number + 0.5)
        axes.barh(
            [start + row * index for index in range(len(modules))],
            values,
            _BAR,
            label=f"{name}: {sum(values) / len(values):.1%}, mean over modules",
            xerr=[
                [each["accuracy"] - each["low"] for each in shown],
                [each["high"] - each["accuracy"] for each in shown],
            ],
            error_kw={"ecolor": "#333", "elinewidth": 0.8},
        )
    axes.set_yticks(
        [row * (index + 0.5) for index in range(len(modules))], modules
    )
    axes.set_ylim(height, 0)
    axes.set_xlim(0, 1)
    axes.set_axisbelow(True)
    axes.grid(axis="x", alpha=0.4)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.xaxis.set_major_locator(MultipleLocator(0.1))
    axes.set_xlabel("right answers, with their 95% confidence interval")
    figure.legend(title=title, loc="outside upper center", frameon=False)
    return finished(figure, path)

"""Figures and the page of accuracies by module."""

import base64
import collections
import pathlib

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MultipleLocator
from matplotlib.ticker import PercentFormatter

from tpt_keras.visualization.page import page
from tpt_keras.visualization.page import write_page
from tpt_keras.visualization.tables import table_cells
from tpt_keras.visualization.tables import table_notes

# Inches of a bar, of the gap between two modules, and of a topic's title.
_BAR, _GAP, _TITLE = 0.13, 0.1, 0.28
# Inches of a column. A figure above this height gets two columns.
_WIDTH, _MAX_HEIGHT = 8.0, 8.0
# Wrong answers on the page per model, split and module, which limits its size.
MAX_WRONG = 200


def modules_by_topic(accuracies):
    """Groups modules by topic, and sorts them by accuracy.

    Args:
        accuracies: Dict from models' names to dicts from modules to rows with
            an `accuracy`.

    Returns:
        Dict from sorted topics to lists of modules, the best of the first
        model first. The next models decide between equal ones.

    Example:

    >>> rows = {"a__b": {"accuracy": 0.1}, "a__c": {"accuracy": 0.2}}
    >>> modules_by_topic({"model": rows})
    {'a': ['a__c', 'a__b']}
    """
    models = list(accuracies.values())

    def worst_last(module):
        return *(-rows[module]["accuracy"] for rows in models), module

    topics = collections.defaultdict(list)
    for module in sorted(models[0], key=worst_last):
        topics[_topic_and_name(module)[0]].append(module)
    return dict(sorted(topics.items()))


def _topic_and_name(module):
    topic, _, name = module.partition("__")
    return topic, name


def _model_colors(names):
    palette = colormaps["tab10"].colors
    return {
        name: to_hex(palette[index % len(palette)])
        for index, name in enumerate(names)
    }


def draw_accuracy_bars(accuracies, title, path):
    """Draws a bar with its confidence interval for every module and model.

    Args:
        accuracies: Dict from models' names to dicts from modules to rows with
            `accuracy`, `low` and `high`. All models have the same modules.
        title: The figure's title.
        path: PNG file to write.
    """
    colors = _model_colors(accuracies)
    row = _BAR * len(accuracies) + _GAP
    columns = _columns(modules_by_topic(accuracies), row)
    height = max(_height(column, row) for column in columns)
    figure = Figure(
        figsize=(
            _WIDTH * len(columns),
            height + 0.25 * len(accuracies) + 0.9,
        ),
        layout="constrained",
    )
    grid = figure.add_gridspec(1, len(columns))
    for place, column in enumerate(columns):
        _draw_column(grid[place], column, accuracies, row, colors)
    figure.legend(
        handles=[
            Patch(color=colors[name], label=_label(name, rows))
            for name, rows in accuracies.items()
        ],
        title=title,
        title_fontsize=12,
        loc="outside upper center",
        frameon=False,
        fontsize=9,
    )
    figure.savefig(path, dpi=100)


def _columns(topics, row):
    """Splits a dict of topics into one column or two of similar height."""
    if _height(topics, row) <= _MAX_HEIGHT or len(topics) == 1:
        return [topics]
    items = list(topics.items())
    splits = [
        [dict(items[:index]), dict(items[index:])]
        for index in range(1, len(items))
    ]
    return min(splits, key=lambda split: max(_height(p, row) for p in split))


def _height(topics, row):
    return sum(_TITLE + row * len(modules) for modules in topics.values())


def _draw_column(place, topics, accuracies, row, colors):
    """Draws a panel for every topic, from top to bottom."""
    heights = [row * len(modules) for modules in topics.values()]
    grid = place.subgridspec(len(topics), 1, height_ratios=heights)
    panels = grid.subplots(squeeze=False, sharex=True)[:, 0]
    for axes, (topic, modules) in zip(panels, topics.items()):
        for number, (name, rows) in enumerate(accuracies.items()):
            _draw_bars(axes, modules, rows, number, row, colors[name])
        axes.set_title(topic, loc="left", fontsize=10, fontweight="bold", pad=3)
        axes.set_yticks(
            [row * (index + 0.5) for index in range(len(modules))],
            [_topic_and_name(module)[1] for module in modules],
        )
        axes.set_ylim(row * len(modules), 0)
        axes.set_axisbelow(True)
        axes.grid(axis="x", alpha=0.4)
        axes.tick_params(labelsize=8)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
    last = panels[-1]
    last.set_xlim(0, 1)
    last.xaxis.set_major_formatter(PercentFormatter(1.0))
    last.xaxis.set_major_locator(MultipleLocator(0.1))
    last.set_xlabel("right answers, with their 95% confidence interval")


def _draw_bars(axes, modules, rows, number, row, color):
    """Draws the bars of the model with this number."""
    shown = [rows[module] for module in modules]
    axes.barh(
        [
            row * index + _GAP / 2 + _BAR * (number + 0.5)
            for index in range(len(modules))
        ],
        [each["accuracy"] for each in shown],
        _BAR,
        color=color,
        xerr=[
            [each["accuracy"] - each["low"] for each in shown],
            [each["high"] - each["accuracy"] for each in shown],
        ],
        error_kw={"ecolor": "#333", "elinewidth": 0.8},
    )


def _label(name, rows):
    mean = sum(row["accuracy"] for row in rows.values()) / len(rows)
    return f"{name}: {mean:.1%}, mean over the modules"


def write_accuracy_page(report, predictions, figures, path):
    """Writes a page with the table, the bars and the wrong answers.

    Args:
        report: Dict, see `table_cells`.
        predictions: Dict from models' names to dicts from pairs, a split and
            a module, to lists of `Prediction`s.
        figures: Dict from splits to PNG files, which the page embeds.
        path: HTML file to write.
    """
    header, *rows = table_cells(report)
    data = {
        "header": header,
        "rows": rows,
        "num_models": len(report["models"]),
        "notes": table_notes(report),
        "figures": {
            split: "data:image/png;base64,"
            + base64.b64encode(pathlib.Path(figure).read_bytes()).decode()
            for split, figure in figures.items()
        },
        "wrong": {
            name: _wrong_by_split(of_model)
            for name, of_model in predictions.items()
        },
    }
    write_page(page("accuracy", data), path)


def _wrong_by_split(predictions):
    """Returns a dict from splits to the wrong answers of each module."""
    splits = {}
    for (split, module), of_module in predictions.items():
        wrong = [each for each in of_module if not each.is_right]
        splits.setdefault(split, []).append(
            {
                "module": module,
                "examples": len(of_module),
                "wrong": len(wrong),
                "problems": [
                    [
                        each.question,
                        each.target,
                        each.unread or each.answer,
                        each.log_prob,
                    ]
                    for each in wrong[:MAX_WRONG]
                ],
            }
        )
    return splits

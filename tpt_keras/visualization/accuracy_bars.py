"""The accuracy of every module as bars, models beside each other."""

import collections

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MultipleLocator
from matplotlib.ticker import PercentFormatter

# Inches: of a bar, between the bars of two modules, and of a topic's title.
_BAR, _GAP, _TITLE = 0.13, 0.1, 0.28
# Of a column; a picture that would be higher than that has two.
_WIDTH, _MAX_HEIGHT = 8.0, 8.0


def modules_by_topic(accuracies):
    """Modules by topic, of each topic the best first.

    Args:
        accuracies: Dict of models' names to dicts of modules to their rows
            with an `accuracy`.

    Returns:
        Dict of topics, sorted, to lists of modules, sorted by the first model
        and where it is the same of some by the next.

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
        topics[topic_and_name(module)[0]].append(module)
    return dict(sorted(topics.items()))


def topic_and_name(module):
    """The two parts of a module's name.

    Args:
        module: Name of a module.

    Returns:
        Two strings.

    Example:

    >>> topic_and_name("algebra__linear_1d")
    ('algebra', 'linear_1d')
    """
    topic, _, name = module.partition("__")
    return topic, name


def model_colors(names):
    """A colour for each of some models.

    Args:
        names: Names of the models.

    Returns:
        Dict of them to colours.
    """
    palette = colormaps["tab10"].colors
    return {
        name: to_hex(palette[index % len(palette)])
        for index, name in enumerate(names)
    }


def draw_accuracy_bars(accuracies, title, path):
    """Draws a bar for every module and model, with its confidence interval.

    Args:
        accuracies: Dict of models' names to dicts of modules to rows with
            `accuracy`, `low` and `high`; all of the same modules.
        title: The picture's title.
        path: PNG file to write.
    """
    colors = model_colors(accuracies)
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
    """One dict of topics, or two of nearly the same height."""
    if _height(topics, row) <= _MAX_HEIGHT or len(topics) == 1:
        return [topics]
    names = list(topics)
    cuts = [
        [{name: topics[name] for name in part} for part in parts]
        for index in range(1, len(names))
        for parts in [(names[:index], names[index:])]
    ]
    return min(cuts, key=lambda cut: max(_height(part, row) for part in cut))


def _height(topics, row):
    return sum(_TITLE + row * len(modules) for modules in topics.values())


def _draw_column(place, topics, accuracies, row, colors):
    """A panel for every topic, below each other."""
    heights = [row * len(modules) for modules in topics.values()]
    grid = place.subgridspec(len(topics), 1, height_ratios=heights)
    panels = grid.subplots(squeeze=False, sharex=True)[:, 0]
    for axes, (topic, modules) in zip(panels, topics.items()):
        for number, (name, rows) in enumerate(accuracies.items()):
            _draw_bars(axes, modules, rows, number, row, colors[name])
        axes.set_title(topic, loc="left", fontsize=10, fontweight="bold", pad=3)
        axes.set_yticks(
            [row * (index + 0.5) for index in range(len(modules))],
            [topic_and_name(module)[1] for module in modules],
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
    last.set_xlabel("answers right; the line: 95% confidence interval")


def _draw_bars(axes, modules, rows, place, row, color):
    """One model's bars: the `place`-th of each module's."""
    shown = [rows[module] for module in modules]
    axes.barh(
        [
            row * index + _GAP / 2 + _BAR * (place + 0.5)
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


def bars_of_page(accuracies):
    """What the page draws the same of.

    Args:
        accuracies: See `draw_accuracy_bars`.

    Returns:
        Dict of `modules`, a list of pairs of a topic and a name, and `models`,
        dicts of a `name`, a `color` and as many `rows`.
    """
    topics = modules_by_topic(accuracies)
    modules = [module for group in topics.values() for module in group]
    colors = model_colors(accuracies)
    return {
        "modules": [topic_and_name(module) for module in modules],
        "models": [
            {
                "name": name,
                "color": colors[name],
                "rows": [rows[module] for module in modules],
            }
            for name, rows in accuracies.items()
        ],
    }

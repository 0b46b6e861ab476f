"""The figure and the page of accuracies by module."""

import base64
import pathlib

from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from matplotlib.ticker import PercentFormatter

from tpt_keras.visualization.page import page
from tpt_keras.visualization.page import write_page
from tpt_keras.visualization.tables import table_cells
from tpt_keras.visualization.tables import table_notes

# Inches of a bar and of the gap between two modules.
_BAR, _GAP = 0.13, 0.1
# Wrong answers on the page per model, split and module, which limits its size.
MAX_WRONG = 200


def draw_accuracy_bars(accuracies, title, path):
    """Draws a bar with its confidence interval for every module and model.

    Modules are sorted by topic, and in a topic by accuracy.

    Args:
        accuracies: Dict from models' names to dicts from modules to rows with
            `accuracy`, `low` and `high`. All models have the same modules.
        title: The figure's title.
        path: PNG file to write.
    """
    first = next(iter(accuracies.values()))
    modules = sorted(
        first, key=lambda name: (name.split("__")[0], -first[name]["accuracy"])
    )
    row = _BAR * len(accuracies) + _GAP
    height = row * len(modules)
    figure = Figure(
        figsize=(8.0, height + 0.25 * len(accuracies) + 1.2),
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
    figure.savefig(path, dpi=100)


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

from tpt_keras.visualization.accuracy_bars import bars_of_page
from tpt_keras.visualization.accuracy_table import table_cells
from tpt_keras.visualization.accuracy_table import table_notes
from tpt_keras.visualization.page import page
from tpt_keras.visualization.page import plotly_library
from tpt_keras.visualization.page import write_page

# Of each model, split and module: a page of all would be as large as the data.
MAX_WRONG = 200


def write_accuracy_page(report, predictions, path):
    """Writes a page of the table, the bars, and what was answered wrong.

    Args:
        report: Dict, see `table_cells`; a model's `splits` have the rows of
            their `of_modules`.
        predictions: Dict of models' names to dicts of pairs, a split and a
            module, to lists of `Prediction`s.
        path: HTML file to write.

    Raises:
        UsageError: If plotly is not installed.
    """
    header, *rows = table_cells(report)
    models = report["models"]
    data = {
        "header": header,
        "rows": rows,
        "num_models": len(models),
        "notes": table_notes(report),
        "figures": {
            split: bars_of_page(
                {
                    model["name"]: model["splits"][split]["of_modules"]
                    for model in models
                }
            )
            for split in models[0]["splits"]
        },
        "wrong": {
            name: _wrong_by_split(of_model)
            for name, of_model in predictions.items()
        },
    }
    write_page(page("accuracy", data, plotly_library()), path)


def _wrong_by_split(predictions):
    """Dict of splits to lists of what the page tells of their modules."""
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

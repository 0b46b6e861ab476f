"""The report of models' accuracies beside the paper's: tables and figures."""

import functools
import importlib.util
import json
import logging
import pathlib

from tpt_keras.analysis.accuracies import PUBLISHED
from tpt_keras.analysis.accuracies import module_accuracy
from tpt_keras.analysis.accuracies import split_accuracies
from tpt_keras.analysis.predictions import PredictionFolder
from tpt_keras.analysis.predictions import model_fingerprint
from tpt_keras.analysis.predictions import prediction_generator
from tpt_keras.data_generators import open_task
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.files import whole_file
from tpt_keras.models.load_model import load_model
from tpt_keras.training.evaluation import saved_step
from tpt_keras.training.state.model_folder import read_training
from tpt_keras.visualization.tables import markdown_table

_logger = logging.getLogger(__name__)


def write_report(page, model_dirs, problems, best=False, batch_size=64):
    """Writes a report's page, table, figures and predictions.

    The JSON and the Markdown beside the page need no plotting library. Without
    matplotlib, the figures and the page are left out with a warning.

    Args:
        page: Path of the page, which ends in .html.
        model_dirs: Folders of the models.
        problems: Dict of `data_dir`, `dataset`, `modules`, `splits` and
            `examples`, the largest number per module and split.
        best: `True` for the best models in place of the last.
        batch_size: Number of questions decoded together.

    Returns:
        Dict, the content of the JSON file.

    Raises:
        UsageError: If there are no such problems, or a model cannot be loaded.
    """
    can_draw = importlib.util.find_spec("matplotlib") is not None
    if not can_draw:
        _logger.warning(
            "matplotlib is not installed: writes no figures and no page. "
            "Install it with: pip install 'tpt_keras[analysis]'"
        )
    task = open_task(
        problems["dataset"],
        problems["data_dir"],
        problems["modules"],
        problems.get("options", ()),
    )
    samples = task.samples(problems["splits"], problems["examples"])
    if not samples:
        raise UsageError(
            f"None of the modules {', '.join(problems['modules'])} has "
            f"problems of the splits {', '.join(problems['splits'])}. Name "
            "other `splits`, or prepare them."
        )
    models = _describe_models(model_dirs, best)
    folder = page.with_name(f"{page.stem}_predictions")
    with folder_lock(folder, "writes predictions"):
        predictions = {
            model["name"]: _predict(model, samples, task, folder, batch_size)
            for model in models
        }
    report = {
        "problems": problems,
        "models": [
            {**model, "splits": split_accuracies(predictions[model["name"]])}
            for model in models
        ],
        "published": PUBLISHED,
    }
    with whole_file(page.with_suffix(".json")) as partial:
        partial.write_text(json.dumps(report, indent=2))
    with whole_file(page.with_suffix(".md")) as partial:
        partial.write_text(markdown_table(report), encoding="utf-8")
    if can_draw:
        _draw(report, predictions, page)
    return report


def _describe_models(model_dirs, best):
    """Returns a dict for every model, once all can be loaded."""
    described = []
    folders = list(dict.fromkeys(model_dirs))
    names = [pathlib.Path(model_dir).resolve().name for model_dir in folders]
    for model_dir, name in zip(folders, names):
        if names.count(name) > 1:
            name = str(pathlib.Path(model_dir)).strip("/").replace("/", "-")
        model = load_model(model_dir, best)
        step = saved_step(model_dir, best)
        if step is None and not best:
            step = read_training(model_dir).get("train_steps")
        described.append(
            {
                "name": name,
                "model_dir": model_dir,
                "model": "best" if best else "last",
                "step": step,
                "weights": model.count_params(),
                "fingerprint": model_fingerprint(model),
            }
        )
    return described


def _predict(model, samples, task, folder, batch_size):
    """Returns a model's predictions, and keeps them in files."""
    kept = PredictionFolder(folder / model["name"], model)

    @functools.cache
    def make_generator():
        loaded = load_model(model["model_dir"], model["model"] == "best")
        return prediction_generator(loaded, batch_size)

    predictions = {}
    for (split, module), problems in samples.items():
        found = kept.predict(
            split, module, problems, make_generator, task.is_right
        )
        predictions[split, module] = found
        _logger.info(
            "%-20s %-40s %-12s %8.2f%% of %d answers right",
            model["name"],
            module,
            split,
            100 * module_accuracy(found)["accuracy"],
            len(found),
        )
    return predictions


def _draw(report, predictions, page):
    from tpt_keras.visualization.accuracy import draw_accuracy_bars
    from tpt_keras.visualization.accuracy import write_accuracy_page

    figures = {}
    for split in report["models"][0]["splits"]:
        accuracies = {
            model["name"]: model["splits"][split]["of_modules"]
            for model in report["models"]
        }
        figures[split] = page.with_name(f"{page.stem}_{split}.png")
        with whole_file(figures[split]) as partial:
            draw_accuracy_bars(accuracies, f"Accuracy, {split}", partial)
    write_accuracy_page(report, predictions, figures, page)

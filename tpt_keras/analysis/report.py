"""Reports of several models: accuracies beside the paper's, and curves."""

import json
import logging
import os
import pathlib
import statistics
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from tpt_keras.analysis.accuracies import PUBLISHED
from tpt_keras.analysis.accuracies import mean_over_seeds
from tpt_keras.analysis.accuracies import split_accuracies
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators import select_groups
from tpt_keras.data_generators.mathematics.task import MathematicsTask
from tpt_keras.errors import UsageError
from tpt_keras.files import write_text
from tpt_keras.models import TRAINED_PRESETS
from tpt_keras.models.stored import HUB
from tpt_keras.models.stored import load_model
from tpt_keras.models.stored import model_file
from tpt_keras.models.stored import resolve
from tpt_keras.training.questions import evaluate
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.state.model_folder import read_config
from tpt_keras.training.state.model_folder import read_training
from tpt_keras.training.state.model_folder import saved_step
from tpt_keras.training.state.model_folder import warn_of_changed_data
from tpt_keras.training.trainer import Trainer
from tpt_keras.typing import StrPath

_log = logging.getLogger(__name__)

# Accuracies whose time a report tells. The last is that of the Transformer of
# Saxton et al.
LEVELS = (0.4, 0.6, 0.76)


def write_report(
    path: pathlib.Path,
    models: Sequence[StrPath],
    splits: Sequence[str] = (),
    examples: int = 100,
    best: bool = False,
    batch_size: int = 256,
    **data: Any,
) -> None:
    """Writes a report's tables, numbers and figures.

    Args:
        path: Path of the tables, which ends in .md. The other files share its
            name. Needs matplotlib.
        models: Folders of the models.
        splits: Names of splits. Defaults to the dataset's for evaluation.
        examples: Largest number of problems per module and split.
        best: `True` for the best models in place of the last.
        batch_size: Number of problems in a batch.
        **data: `dataset`, `data_dir`, `dataset_options` and `modules`. Each
            defaults to that of the trainings, which have to agree.

    Raises:
        UsageError: If there are no such problems, or a model cannot be loaded.
    """
    # Once, because it asks the Hugging Face Hub for its models.
    names = {
        str(resolve(given)): name for given, name in short_names(models).items()
    }
    for folder in names:
        model_file(folder, best)
    data = _with_defaults(data, list(map(read_training, names)))
    source = data["dataset"], data["data_dir"]
    data["modules"] = list(select_groups(*source, data["modules"]))
    task = open_task(*source, data["modules"], data["dataset_options"])
    splits = list(dict.fromkeys(splits or task.splits))
    # A missing split is refused, even beside one that has problems.
    found = [task.examples(split) for split in splits]
    if not any(found):
        raise UsageError(
            f"None of the modules {', '.join(task.groups)} has problems of "
            f"the splits {', '.join(splits)}. Name other `splits`, or prepare "
            "them.",
            field="splits",
        )
    for folder in names:
        if read_training(folder).get("dataset") == task.name:
            warn_of_changed_data(folder, task.fingerprints)
    rows = []
    for folder in names:
        model = load_model(folder, best)
        results = _evaluate(
            names[folder], model, task, splits, batch_size, examples
        )
        rows.append(
            {
                "name": names[folder],
                "path": folder,
                "model": "best" if best else "last",
                "step": saved_step(folder, best),
                "weights": model.count_params(),
                "splits": split_accuracies(results),
            }
        )
    metric = f"{task.splits[0]}_sequence_accuracy"
    curves = training_curves(names, metric)
    report = {
        "problems": {**data, "splits": splits, "examples": examples},
        "means": _means(rows, names),
        "models": rows,
        "published": PUBLISHED if isinstance(task, MathematicsTask) else [],
        "reached": times_to(LEVELS, curves, metric),
    }
    write_text(path.with_suffix(".json"), json.dumps(report, indent=2))
    _draw(report, curves, metric, path)


def _with_defaults(data, trainings):
    found = {}
    for name in ("dataset", "data_dir", "modules", "dataset_options"):
        values = [data.get(name)]
        if not values[0]:
            # Converted models have no training.
            known = [each for each in trainings if name in each]
            if name == "dataset_options":
                # Another dataset has others.
                dataset = found["dataset"]
                known = [each for each in known if each["dataset"] == dataset]
            values = list(dict.fromkeys(each[name] for each in known))
        if not values and name == "dataset_options":
            values = [()]
        if len(values) != 1:
            raise UsageError(
                f"The trainings name {'several' if values else 'no'} `{name}`. "
                f"Set `{name}`.",
                field=name,
            )
        found[name] = values[0]
    return found


def _evaluate(name, model, task, splits, batch_size, examples):
    trainer = Trainer(model)
    trainer.compile(jit_compile=False)
    for split in splits:
        for result in evaluate(trainer, task, [split], batch_size, examples):
            _log.info(
                "%-20s %-40s %-12s %8.2f%% of %d answers right",
                name,
                result["module"],
                split,
                100 * result["sequence_accuracy"],
                result["examples"],
            )
            yield result


def _means(models, names):
    """Returns rows of the models that differ in their seed alone."""
    by_path = {model["path"]: model for model in models}
    rows = []
    for name, paths in by_seeds(by_path, names).items():
        if len(paths) > 1:
            seeds = [by_path[path] for path in paths]
            splits = mean_over_seeds([seed["splits"] for seed in seeds])
            # A callback or the clock may end each at another step.
            steps = {seed["step"] for seed in seeds}
            row = {"name": name, "weights": seeds[0]["weights"]}
            row["step"] = steps.pop() if len(steps) == 1 else None
            rows.append({**row, "splits": splits})
    return rows


def short_names(paths: Iterable[StrPath]) -> dict[str, str]:
    """Returns a dict from paths to their parts below the common folder.

    They keep their paths if two parts are the same.
    """
    names = {str(path): str(path) for path in paths}
    folders = {
        path: pathlib.Path(os.path.abspath(path))
        for path in names
        if not path.startswith(HUB) and path not in TRAINED_PRESETS
    }
    if folders:
        common = os.path.commonpath([each.parent for each in folders.values()])
        for path, folder in folders.items():
            names[path] = folder.relative_to(common).as_posix()
    if len(set(names.values())) < len(names):
        return {path: path for path in names}
    return names


def by_seeds(
    model_dirs: Iterable[StrPath], names: dict[str, str]
) -> dict[str, list[str]]:
    """Groups the folders of trainings that differ in their seed alone.

    Takes names as `short_names` gives them, and returns a dict from a group's
    name to its folders.
    """
    groups = {}
    for model_dir in dict.fromkeys(map(str, model_dirs)):
        key, training = model_dir, read_training(model_dir)
        if training:
            model = read_config(model_dir).get("model")
            key = json.dumps([model, {**training, "seed": None}])
        groups.setdefault(key, []).append(model_dir)
    return {
        f"{names[folders[0]]}, mean of {len(folders)} seeds"
        if len(folders) > 1
        else names[folders[0]]: folders
        for folders in groups.values()
    }


def training_curves(
    names: dict[str, str], metric: str
) -> dict[str, list[dict[str, Any]]]:
    """Returns a dict from names to rows with the metric.

    A row has its `step`, the number of `examples` seen and, unless an earlier
    version trained, the `minutes`. Trainings that differ in their seed alone
    are averaged.

    Args:
        names: Dict from folders to names, see `short_names`. Those without the
            metric are left out.
        metric: Name of the metric.
    """
    of_all = {folder: _series(folder, metric) for folder in names}
    known = [folder for folder, rows in of_all.items() if rows]
    curves = {}
    for name, folders in by_seeds(known, names).items():
        series = [of_all[folder] for folder in folders]
        curves[name] = [
            _mean_row(rows) for rows in zip(*(each.values() for each in series))
        ]
    return curves


def _mean_row(rows):
    names = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: statistics.mean(row[name] for row in rows) for name in names}


def _series(model_dir, metric):
    batch_size = read_training(model_dir).get("batch_size")
    found = {}
    for row in read_metrics(model_dir):
        if metric in row:
            kept = {
                name: row[name]
                for name in ("step", "minutes", metric)
                if name in row
            }
            if batch_size:
                kept["examples"] = row["step"] * batch_size
            found[row["step"]] = kept
    return found


def times_to(
    levels: Iterable[float],
    curves: dict[str, list[dict[str, Any]]],
    metric: str,
) -> list[dict[str, Any]]:
    """Returns the rows in which trainings first reach levels of a metric.

    `curves` are those of `training_curves`. Returns a list of dicts of a
    training's `name`, a `level`, and the `row` of the first evaluation that
    reached it, or `None`.
    """
    return [
        {
            "name": name,
            "level": level,
            "row": next((row for row in rows if row[metric] >= level), None),
        }
        for name, rows in curves.items()
        for level in levels
    ]


def _draw(report, curves, metric, path):
    from tpt_keras.visualization.charts import draw_accuracy_bars
    from tpt_keras.visualization.charts import draw_trainings
    from tpt_keras.visualization.charts import markdown_report

    write_text(path, markdown_report(report))
    for split in report["models"][0]["splits"]:
        accuracies = {
            model["name"]: model["splits"][split]["of_modules"]
            for model in report["models"]
        }
        picture = path.with_name(f"{path.stem}_{split}.png")
        draw_accuracy_bars(accuracies, f"Accuracy, {split}", picture)
    if curves:
        picture = path.with_name(f"{path.stem}_trainings.png")
        draw_trainings(curves, metric, picture)

"""The report of a search: tables, pictures and the best trial's flagfile."""

import importlib.util
import json
import pathlib

from tpt_keras.files import whole_file
from tpt_keras.models.configs import to_stored
from tpt_keras.models.presets import PRESETS
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state.model_folder import read_config
from tpt_keras.tuning.trials import execution_folder
from tpt_keras.tuning.trials import ranked
from tpt_keras.tuning.trials import read_search
from tpt_keras.tuning.trials import search_results


def write_report(folder):
    """Writes the results of a search, finished or not, into its folder.

    `report.json` and `report.md` hold the trials. If any is completed,
    `best.cfg` is the flagfile of the best, and there are pictures if matplotlib
    is installed.

    Args:
        folder: The search's folder.

    Returns:
        The trials, see `search_results`.

    Raises:
        UsageError: If the folder holds no search, or a damaged one.
    """
    folder = pathlib.Path(folder)
    search = read_search(folder)
    results = search_results(folder)
    best = ranked(results, search["objective"])
    _write(folder / "report.json", json.dumps(results, indent=2))
    text = _summary(search, results)
    tables = {
        "The best of each variant": _table(_best_of_variants(best)),
        "All trials": _table(results),
    }
    pictures = _draw(folder, best, search["objective"]) if best else []
    _write(folder / "report.md", _markdown(text, tables, pictures))
    if best:
        model_dir = execution_folder(folder / best[0]["folder"], 0)
        _write(folder / "best.cfg", flagfile(read_config(model_dir)))
    return results


def _draw(folder, best, objective):
    """Draws the pictures and returns their names."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    from tpt_keras.visualization import search

    drawn = {
        "choices.png": search.draw_choices,
        "parallel_coordinates.png": search.draw_parallel_coordinates,
    }
    for name, draw in drawn.items():
        with whole_file(folder / name) as partial:
            draw(best, objective, partial)
    return list(drawn)


def flagfile(config):
    """The flagfile that makes `experiments.train` repeat a training.

    Args:
        config: The resolved configuration of a model's folder, as
            `read_config` returns it. It names its preset.

    Returns:
        Text, one flag in each line, without those at their defaults.
    """
    preset = _by_dotted_names(to_stored(PRESETS[config["preset"]]))
    hparams = ",".join(
        f"{name}={value}"
        for name, value in _by_dotted_names(config["model"]).items()
        if name not in ("kind", "vocabulary") and value != preset.get(name)
    )
    found = TrainingConfig.from_stored(config["training"])
    training = found.flat()
    defaults = TrainingConfig.from_flat(
        found.optimizer_name, modules=found.data.modules
    ).flat() | {"optimizer": "adam"}
    modules = training.pop("modules")
    weights = zip(modules, training.pop("module_weights"))
    flags = {
        "preset": config["preset"],
        "hparams": hparams,
        "modules": ",".join(modules),
        "module_weights": ",".join(f"{name}={w}" for name, w in weights),
        "profile_steps": ",".join(map(str, training.pop("profile_steps"))),
        **{
            name: value
            for name, value in training.items()
            if value != defaults[name]
        },
    }
    return "".join(
        f"--{name}={value}\n" for name, value in flags.items() if value != ""
    )


def _by_dotted_names(model):
    """A stored model's fields, each option by a dotted name."""
    fields = {}
    for name, value in model.items():
        if isinstance(value, dict):
            fields |= {f"{name}.{key}": value[key] for key in value}
        else:
            fields[name] = value
    return fields


def _write(path, text):
    with whole_file(path) as partial:
        partial.write_text(text)


def _summary(search, results):
    training, space = search["training"], search["space"]
    counts = ", ".join(
        f"{sum(result['status'] == status for result in results)} {status}"
        for status in ("completed", "failed", "running")
    )
    return (
        f"{len(results)} trials ({counts}) of a {search['tuner']} search for "
        f"the best {search['objective']}, on {', '.join(training['modules'])}. "
        f"Models of {space['min_weights']:,} to {space['max_weights']:,} "
        f"weights, {training['train_steps']:,} steps of "
        f"{training['batch_size']} problems, "
        f"{search['executions_per_trial']} execution(s) of each trial, with "
        f"seeds from {training['seed']} on. A score is the mean of the "
        "executions' best values."
    )


def _best_of_variants(best):
    found = {}
    for result in best:
        found.setdefault(result["hyperparameters"]["variant"], result)
    return list(found.values())


def _table(results):
    """Rows of cells, the header first."""
    names = {
        name: None for result in results for name in result["hyperparameters"]
    }
    columns = (
        "hidden_dim",
        "intermediate_dim",
        "weights",
        "score",
        "from",
        "to",
        "best_step",
        "folder",
        "reason",
    )
    rows = [["trial", "status", *names, *columns]]
    for result in results:
        scores = result["scores"]
        cells = {
            **result,
            **result["hyperparameters"],
            "from": min(scores, default=None),
            "to": max(scores, default=None),
        }
        rows.append([_cell(cells.get(name)) for name in rows[0]])
    return rows


def _cell(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _markdown(text, tables, pictures):
    parts = ["# Search", text]
    for title, (header, *rows) in tables.items():
        lines = [header, ["---"] * len(header), *rows]
        parts += [
            f"## {title}",
            "\n".join(
                f"| {' | '.join(cell.replace('|', '/') for cell in line)} |"
                for line in lines
            ),
        ]
    parts += [f"![{name}]({name})" for name in pictures]
    return "\n\n".join(parts) + "\n"

"""The report of a search: tables and the best trial's flagfile."""

import json
import operator
from typing import Any

from tpt_keras.files import write_text
from tpt_keras.models.configs import to_stored
from tpt_keras.models.presets import PRESETS
from tpt_keras.tokenizers.character_tokenizer import VOCABULARIES
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state.model_folder import read_config
from tpt_keras.tuning.search_space import OBJECTIVES
from tpt_keras.visualization.figures import markdown_table


def write_report(folder, search, results):
    """Writes the results that `tune` returns into the folder of its search.

    `search` is the content of its `config.json`.
    """
    completed = [each for each in results if each["status"] == "completed"]
    larger_is_better = OBJECTIVES[search["objective"]] is max
    ranked = sorted(
        completed, key=operator.itemgetter("score"), reverse=larger_is_better
    )
    best = {}
    for each in ranked:
        best.setdefault(each["hyperparameters"]["variant"], each)
    parts = [
        "# Search",
        _summary(search, results),
        "## The best of each variant",
        _table(list(best.values())),
        "## All trials",
        _table(results),
    ]
    write_text(folder / "report.json", json.dumps(results, indent=2))
    write_text(folder / "report.md", "\n\n".join(parts) + "\n")
    if ranked:
        config = read_config(folder / ranked[0]["folder"])
        write_text(folder / "best.cfg", flagfile(config))


def _summary(search, results):
    training, space = search["training"], search["space"]
    completed = sum(each["status"] == "completed" for each in results)
    return (
        f"{len(results)} trials ({completed} completed, "
        f"{len(results) - completed} failed) of a {search['tuner']} search for "
        f"the best {search['objective']}, on "
        f"{', '.join(training['data']['modules'])}. "
        f"Models of {space['min_weights']:,} to {space['max_weights']:,} "
        f"weights, {training['run']['train_steps']:,} steps of "
        f"{training['data']['batch_size']} problems, "
        f"{search['executions_per_trial']} execution(s) of each trial, with "
        f"seeds from {training['run']['seed']} on. A score is the mean of the "
        "executions' best values."
    )


def _table(results):
    names = dict.fromkeys(
        name for result in results for name in result["hyperparameters"]
    )
    columns = (
        *("trial", "status", *names),
        *("hidden_dim", "intermediate_dim", "weights"),
        *("score", "scores", "best_step", "folder", "reason"),
    )
    rows = []
    for result in results:
        values = result | result["hyperparameters"]
        rows.append([_cell(values.get(name)) for name in columns])
    return markdown_table(columns, rows)


def _cell(value):
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    return value or ""


def flagfile(config: dict[str, Any]) -> str:
    """Returns the flags that make `tpt_keras train` repeat a training.

    Those at their defaults are left out. `config` is a model folder's.
    """
    preset = _by_dotted_names(to_stored(PRESETS[config["preset"]]))
    model = _by_dotted_names(config["model"])
    # The vocabulary gives its size. The task gives one without a name.
    preset["vocabulary_size"] = len(model["vocabulary"])
    names = {symbols: name for name, symbols in VOCABULARIES.items()}
    for fields in (preset, model):
        fields["vocabulary"] = names.get(tuple(fields["vocabulary"]))
    hparams = [
        f"{name}={value}"
        for name, value in model.items()
        if name != "kind" and value not in (None, preset.get(name))
    ]
    found = TrainingConfig.from_stored(config["training"])
    training = found.flat()
    modules, weights = training.pop("modules"), training.pop("module_weights")
    defaults = TrainingConfig.from_flat(
        found.optimizer.optimizer, modules=modules
    ).flat() | {"optimizer": "adam"}
    changed = {k: v for k, v in training.items() if v != defaults[k]}
    flags = {
        "preset": config["preset"],
        "hparams": hparams,
        "modules": modules,
        "module_weights": [
            f"{name}={weight}" for name, weight in zip(modules, weights)
        ],
        **changed,
    }
    for name, value in flags.items():
        if isinstance(value, (list, tuple)):
            flags[name] = ",".join(map(str, value))
    return "".join(
        f"--{name}={value}\n" for name, value in flags.items() if value != ""
    )


def _by_dotted_names(model):
    fields = {}
    for name, value in model.items():
        if isinstance(value, dict):
            fields |= {f"{name}.{key}": value[key] for key in value}
        else:
            fields[name] = value
    return fields

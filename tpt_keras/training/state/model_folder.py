"""The folder of a training and of its models.

config.json         the configuration
model.keras         the finished model
model-1000.keras    the finished model before the training was prolonged
best.keras          the model with the best validation score
checkpoints/        the state of the training
logs/               metrics for TensorBoard
metrics.jsonl       the same metrics for scripts
learning_curves.png
evaluation.json     results of evaluations
.lock               held by the process that trains
"""

import contextlib
import dataclasses
import json
import pathlib

from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.files import reading
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file
from tpt_keras.models.load_model import BEST_MODEL_FILE
from tpt_keras.models.load_model import MODEL_FILE
from tpt_keras.models.weights import copy_model
from tpt_keras.training.config import MAY_CHANGE
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state.checkpoints import remove_unfinished
from tpt_keras.training.state.logs import METRICS_FILE

CONFIG_FILE = "config.json"
CHECKPOINTS = "checkpoints"
LEARNING_CURVES_FILE = "learning_curves.png"


@contextlib.contextmanager
def training_lock(model_dir):
    """Keeps other processes from training in a folder.

    It removes what killed processes left unfinished.

    Args:
        model_dir: The folder; made if it is missing.

    Raises:
        UsageError: If another process trains there.
    """
    folder = pathlib.Path(model_dir)
    with folder_lock(folder, "trains"):
        for name in (
            CONFIG_FILE,
            MODEL_FILE,
            BEST_MODEL_FILE,
            METRICS_FILE,
            LEARNING_CURVES_FILE,
        ):
            remove_partial(folder / name)
        remove_unfinished(folder / CHECKPOINTS)
        yield


def check_config(model_dir, config):
    """Raises an error if the folder belongs to another training.

    Args:
        model_dir: The folder; it may be missing.
        config: Dict of the configuration.

    Raises:
        UsageError: With the differences.
    """
    if (pathlib.Path(model_dir) / CONFIG_FILE).exists():
        _check_same(model_dir, read_config(model_dir), _as_read(config))


def ensure_config(model_dir, config):
    """Writes the configuration, if the folder does not belong to another.

    If a finished training is prolonged, its model gets another name.

    Args:
        model_dir: The folder; made if it is missing.
        config: Dict of the configuration.

    Raises:
        UsageError: If the folder belongs to another training.
    """
    folder = pathlib.Path(model_dir)
    path = folder / CONFIG_FILE
    config = _as_read(config)
    if path.exists():
        old = read_config(folder)
        if old == config:
            return
        _check_same(folder, old, config)
        if is_prolonged(old, config):
            steps = old["training"]["run"]["train_steps"]
            set_model_aside(folder, steps)
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(json.dumps(config, indent=2))


def read_config(model_dir):
    """Reads the configuration of a model's folder.

    Args:
        model_dir: The folder.

    Returns:
        Dict.

    Raises:
        UsageError: If there is none, or a damaged one.
    """
    path = pathlib.Path(model_dir) / CONFIG_FILE
    if not path.is_file():
        raise UsageError(
            f"The folder {str(model_dir)!r} is no model folder: it has no "
            f"{CONFIG_FILE}. Train a model into it.",
            path=model_dir,
            remedy=("train", {}),
        )
    with reading(path, "Restore it, or train into another folder."):
        config = json.loads(path.read_text())
        if not isinstance(config, dict) or not all(
            isinstance(config.get(name, {}), dict)
            for name in ("model", "training", "data")
        ):
            raise ValueError("it is no configuration")
        if "training" in config:
            TrainingConfig.from_stored(config["training"])
    return config


def read_training(model_dir):
    """Reads the configuration of a folder's training.

    Args:
        model_dir: The folder.

    Returns:
        Dict of flat names, as `TrainingConfig.flat` gives it; empty if the
        folder has none, like that of a converted checkpoint.

    Raises:
        UsageError: If the configuration is damaged.
    """
    if not (pathlib.Path(model_dir) / CONFIG_FILE).exists():
        return {}
    training = read_config(model_dir).get("training")
    return TrainingConfig.from_stored(training).flat() if training else {}


def save_finished_model(model, model_dir, config):
    """Saves a model; the optimizer stays in the checkpoints.

    Args:
        model: A `SequenceToSequence`.
        model_dir: The folder; made if it is missing.
        config: Dict of the configuration.
    """
    ensure_config(model_dir, config)
    _save(model, pathlib.Path(model_dir) / MODEL_FILE)


def save_best_model(model, model_dir):
    """Saves the best model so far, in place of the one before.

    Args:
        model: A `SequenceToSequence`.
        model_dir: The folder.
    """
    _save(model, pathlib.Path(model_dir) / BEST_MODEL_FILE)


def is_finished(model_dir, config):
    """Returns `True` if the folder holds the finished model of a training.

    Args:
        model_dir: The folder.
        config: Dict of the training's configuration.
    """
    folder = pathlib.Path(model_dir)
    if not (folder / MODEL_FILE).is_file():
        return False
    return not (
        (folder / CONFIG_FILE).exists()
        and is_prolonged(read_config(folder), config)
    )


def set_model_aside(model_dir, name):
    """Renames a finished model, if there is one.

    Args:
        model_dir: The folder.
        name: Suffix of its new name.

    Returns:
        Its new path.
    """
    path = pathlib.Path(model_dir) / MODEL_FILE
    aside = path.with_stem(f"{path.stem}-{name}")
    with contextlib.suppress(FileNotFoundError):
        path.replace(aside)
    return aside


def is_prolonged(old, new):
    """Returns `True` if a training is another one with more steps.

    Args:
        old: Dict of a folder's configuration.
        new: Dict of the requested one.
    """
    return _has_more_steps(old, new) and not _ends(new)


def _has_more_steps(old, new):
    if "training" not in old:
        return False
    before, after = (
        config["training"]["run"]["train_steps"] for config in (old, new)
    )
    return before < after


def _ends(config):
    return config["training"]["optimizer"]["schedule"] != "constant"


def _check_same(model_dir, old, new):
    """Compares two configurations, less the fields that may change."""
    may_change = {f"training.{name}" for name in MAY_CHANGE}
    if is_prolonged(old, new):
        may_change.add("training.train_steps")
    found = [
        difference
        for name, difference in differences(_flat(old), _flat(new))
        if name not in may_change
    ]
    if found:
        advice = ""
        if _has_more_steps(old, new) and _ends(new):
            schedule = new["training"]["optimizer"]["schedule"]
            advice = (
                f" A {schedule} schedule ends with its last step: to train "
                f"on, start another training with `init_from` {model_dir}."
            )
        raise UsageError(
            f"The folder {str(model_dir)!r} belongs to a training with "
            f"another configuration ({'; '.join(found)}). Take the same one, "
            f"or another `model_dir`.{advice}",
            field="model_dir",
            path=model_dir,
        )
    _check_same_data(model_dir, old.get("data"), new)


def _check_same_data(model_dir, before, new):
    after = new.get("data")
    if before is None or after is None:
        return
    changed = [name for name in after if before.get(name) != after[name]]
    if not changed:
        return
    data = new["training"]["data"]
    field = "text_file" if data.get("text_file") else "data_dir"
    raise UsageError(
        f"The data in {data[field]!r} ({', '.join(changed)}) is not that of "
        f"the training in {str(model_dir)!r}. Restore the first data, set "
        f"`{field}` to it, or take another `model_dir`.",
        field=field,
        path=data[field],
    )


def _flat(config):
    """Returns a configuration by flat names, less the data's fingerprints."""
    flat = {key: config[key] for key in config if key != "data"}
    if "training" in config:
        training = TrainingConfig.from_stored(config["training"]).flat()
        flat["training"] = _as_read(training)
    return flat


def defaults(config_class):
    """Returns the defaults of a dataclass's fields, as JSON's types.

    Args:
        config_class: A dataclass.

    Returns:
        Dict.
    """
    values = {}
    for field in dataclasses.fields(config_class):
        if field.default is not dataclasses.MISSING:
            values[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            values[field.name] = field.default_factory()
    return _as_read(values)


def differences(old, new, prefix=""):
    """Compares two configurations.

    Args:
        old: Dict of a stored one, of JSON's types; it may be nested.
        new: Dict of the requested one.
        prefix: Prefix of the fields' names.

    Yields:
        Pairs of a field's name and its difference as text.
    """
    for key in sorted(old.keys() | new.keys()):
        name = f"{prefix}{key}"
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from differences(before, after, f"{name}.")
        elif before != after:
            here = f"{_shown(after)} here" if key in new else "not known here"
            yield name, f"{name}: {_shown(before)} there, {here}"


def _shown(value):
    return repr(value) if value == "" else str(value)


def _as_read(config):
    """Returns a configuration as its file has it, without tuples."""
    return json.loads(json.dumps(config))


def _save(model, path):
    uncompiled = copy_model(model, model.dtype_policy)
    with whole_file(path) as partial:
        uncompiled.save(partial)

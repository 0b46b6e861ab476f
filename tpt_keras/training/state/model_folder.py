"""The folder of a training and of its models.

config.json         the configuration; of a compressed model, and of one with
                    earlier weights put back, also its step
model.keras         the finished model
best.keras          the model with the best validation score
checkpoints/        the state of the training
logs/               metrics for TensorBoard
metrics.jsonl       the same metrics for scripts
learning_curves.png
evaluations.jsonl   results of evaluations
.lock               held by the process that trains
"""

import contextlib
import json
import logging
import pathlib
import reprlib

from tpt_keras.errors import UsageError
from tpt_keras.files import PARTIAL
from tpt_keras.files import folder_lock
from tpt_keras.files import reading
from tpt_keras.files import whole_file
from tpt_keras.files import write_text
from tpt_keras.models.stored import BEST_MODEL_FILE
from tpt_keras.models.stored import MODEL_FILE
from tpt_keras.models.stored import resolve
from tpt_keras.models.weights import copy_model
from tpt_keras.training.config import MAY_CHANGE
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state.logs import best_row
from tpt_keras.training.state.logs import read_metrics

CONFIG_FILE = "config.json"
CHECKPOINTS = "checkpoints"
LEARNING_CURVES_FILE = "learning_curves.png"

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def training_lock(model_dir):
    """Keeps other processes from training in a folder.

    It removes what killed processes left unfinished.
    """
    folder = pathlib.Path(model_dir)
    with folder_lock(folder, "trains"):
        for place in (folder, folder / CHECKPOINTS):
            for partial in place.glob(f"{PARTIAL}*"):
                partial.unlink()
        yield


def write_config(model_dir, config):
    """Writes a configuration, unless the folder belongs to another training."""
    folder = pathlib.Path(model_dir)
    check_config(folder, config)
    write_text(folder / CONFIG_FILE, json.dumps(config, indent=2))


def read_config(model_dir):
    """Reads the configuration of a model's folder, a dict.

    A name of the folder may be given, as to `load_model`.
    """
    path = resolve(model_dir) / CONFIG_FILE
    if not path.is_file():
        raise UsageError(
            f"The folder {str(model_dir)!r} is no model folder: it has no "
            f"{CONFIG_FILE}. Train a model into it.",
            path=model_dir,
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
    """Reads the configuration of a folder's training, by flat names.

    It is empty if the folder has none, like that of a converted checkpoint.
    """
    if not (resolve(model_dir) / CONFIG_FILE).exists():
        return {}
    training = read_config(model_dir).get("training")
    return TrainingConfig.from_stored(training).flat() if training else {}


def saved_step(model_dir, best):
    """Returns the step of the best or the last model, `None` if unknown."""
    rows = read_metrics(model_dir)
    # The first of equal ones was kept.
    row = best_row(rows) if best else next(reversed(rows), None)
    stored = {}
    if (resolve(model_dir) / CONFIG_FILE).exists():
        stored = read_config(model_dir)
    if "step" in stored and not (best and row):
        return stored["step"]
    return row["step"] if row else None


def check_config(model_dir, config):
    """Raises an error with the differences if the folder is another's."""
    if not (pathlib.Path(model_dir) / CONFIG_FILE).exists():
        return
    found = [
        difference
        for name, difference in differences(
            _comparable(read_config(model_dir)), _comparable(config)
        )
        if name.removeprefix("training.") not in MAY_CHANGE | {"step"}
    ]
    if found:
        raise UsageError(
            f"The folder {str(model_dir)!r} belongs to a training with "
            f"another configuration or other data ({'; '.join(found)}). Take "
            "the same, or another folder.",
            field="model_dir",
            path=model_dir,
        )


def _comparable(config):
    """Returns a configuration with all fields of its training, flat."""
    if "training" in config:
        training = TrainingConfig.from_stored(config["training"]).flat()
        config = {**config, "training": training}
    # Without tuples, as a file has it.
    return json.loads(json.dumps(config))


def warn_of_changed_data(model_dir, fingerprints):
    """Logs how data differs from that of a folder's training.

    Args:
        model_dir: The folder. One without a record of its data passes.
        fingerprints: Dict of the groups to compare; see `Task.fingerprints`.
    """
    trained = read_config(model_dir).get("data")
    found = [
        f"{name} ({trained[name]} then, {fingerprint} now)"
        if name in trained
        else f"{name} (new)"
        for name, fingerprint in (fingerprints if trained else {}).items()
        if trained.get(name) != fingerprint
    ]
    if found:
        # Of all modules they would fill the screen.
        others = f" and {len(found) - 3} others" if len(found) > 3 else ""
        _log.warning(
            "The data is not that of the training of %s: %s%s. The model may "
            "have been trained on what is held out now.",
            model_dir,
            ", ".join(found[:3]),
            others,
        )


def differences(old, new, prefix=""):
    """Generates the fields in which nested dicts differ, and texts of it."""
    for key in sorted(old.keys() | new.keys()):
        name = f"{prefix}{key}"
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from differences(before, after, f"{name}.")
        elif before != after:
            there, here = map(_shown, (before, after))
            here = f"{here} here" if key in new else "not known here"
            yield name, f"{name}: {there} there, {here}"


def _shown(value):
    """Returns a value's text; of a long list, such as symbols, its start."""
    return value if value and isinstance(value, str) else reprlib.repr(value)


def save_model(model, model_dir, best=False):
    """Saves the finished or the best model, without its optimizer."""
    uncompiled = copy_model(model, model.dtype_policy)
    path = pathlib.Path(model_dir) / (BEST_MODEL_FILE if best else MODEL_FILE)
    with whole_file(path) as partial:
        uncompiled.save(partial)

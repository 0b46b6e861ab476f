"""What lies in a model's folder, and how it gets there whole.

config.json         the resolved configuration
model.keras         the finished model
model-1000.keras    the one before the training was prolonged from 1000 steps
best.keras          the model that was best in validation
checkpoints/        of the training so far
logs/               for TensorBoard
metrics.jsonl       the same for scripts
learning_curves.png
evaluation.json     what the evaluations gave
.lock               who has it trains
"""

import contextlib
import json
import pathlib

from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file
from tpt_keras.models.load_model import BEST_MODEL_FILE
from tpt_keras.models.load_model import MODEL_FILE
from tpt_keras.models.weights import copy_model
from tpt_keras.training.checkpoint_files import remove_unfinished
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.metrics_log import METRICS_FILE
from tpt_keras.training.same_training import check_same_training
from tpt_keras.training.same_training import is_prolonged

CONFIG_FILE = "config.json"
CHECKPOINTS = "checkpoints"
LEARNING_CURVES_FILE = "learning_curves.png"


@contextlib.contextmanager
def training_lock(model_dir):
    """Keeps other processes from training in a folder.

    What killed ones left half written there is removed.

    Args:
        model_dir: The folder; made where it is not there.

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
    """Raises a `UsageError` if the folder belongs to another training.

    Args:
        model_dir: The folder, there or not.
        config: Dict of the resolved configuration.
    """
    if (pathlib.Path(model_dir) / CONFIG_FILE).exists():
        check_same_training(model_dir, read_config(model_dir), _as_read(config))


def ensure_config(model_dir, config):
    """Makes sure that the folder is this training's, by its configuration.

    It is written where there is none, and otherwise has to be the same.

    The finished model of a training that is prolonged is the finished one no
    longer, and gets another name.

    Args:
        model_dir: The folder; made where it is not there.
        config: Dict of the resolved configuration.

    Raises:
        UsageError: If the folder has another configuration.
    """
    folder = pathlib.Path(model_dir)
    path = folder / CONFIG_FILE
    config = _as_read(config)
    if path.exists():
        old = read_config(folder)
        if old == config:
            return
        check_same_training(folder, old, config)
        if is_prolonged(old, config):
            set_model_aside(folder, old["training"]["run"]["train_steps"])
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(json.dumps(config, indent=2))


def read_config(model_dir):
    """The resolved configuration of a model's folder.

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
            f"The folder {str(model_dir)!r} holds no {CONFIG_FILE}: it is no "
            "model folder. Train a model first.",
            path=model_dir,
            remedy=("train", {}),
        )
    try:
        config = json.loads(path.read_text())
    except (ValueError, RecursionError):
        config = None
    if not _is_sound(config):
        raise UsageError(
            f"The file {str(path)!r} is damaged. Restore it, or train into "
            "another folder."
        )
    return config


def read_training(model_dir):
    """Reads the configuration of a folder's training.

    Args:
        model_dir: The folder.

    Returns:
        Dict of flat names, as `TrainingConfig.flat` gives it; empty if the
        folder has none, like that of a converted checkpoint.

    Raises:
        UsageError: If its configuration is damaged.
    """
    if not (pathlib.Path(model_dir) / CONFIG_FILE).exists():
        return {}
    training = read_config(model_dir).get("training")
    return TrainingConfig.from_stored(training).flat() if training else {}


def save_finished_model(model, model_dir, config):
    """Saves a model, under its final name only when it is whole.

    The model alone: what the optimizer keeps is in the checkpoints.

    Args:
        model: A `SequenceToSequence`.
        model_dir: The folder; made where it is not there.
        config: Dict of the resolved configuration.
    """
    ensure_config(model_dir, config)
    _save(model, pathlib.Path(model_dir) / MODEL_FILE)


def save_best_model(model, model_dir):
    """Saves the model that is the best so far, in place of the last one.

    Args:
        model: A `SequenceToSequence`.
        model_dir: The folder.
    """
    _save(model, pathlib.Path(model_dir) / BEST_MODEL_FILE)


def is_finished(model_dir, config):
    """Whether the folder holds the finished model of a training.

    Args:
        model_dir: The folder.
        config: Dict of the training's resolved configuration.
    """
    folder = pathlib.Path(model_dir)
    if not (folder / MODEL_FILE).is_file():
        return False
    return not (
        (folder / CONFIG_FILE).exists()
        and is_prolonged(read_config(folder), config)
    )


def set_model_aside(model_dir, name):
    """Gives a finished model, if there is one, another name.

    Args:
        model_dir: The folder.
        name: What to add to its name.

    Returns:
        Its new path.
    """
    path = pathlib.Path(model_dir) / MODEL_FILE
    aside = path.with_stem(f"{path.stem}-{name}")
    with contextlib.suppress(FileNotFoundError):
        path.replace(aside)
    return aside


def _as_read(config):
    """A configuration as it comes back from its file, without tuples."""
    return json.loads(json.dumps(config))


def _is_sound(config):
    """Whether a configuration has what it has to, of the right types."""
    if not isinstance(config, dict):
        return False
    sections = ("model", "training", "data")
    if not all(isinstance(config.get(name, {}), dict) for name in sections):
        return False
    if "training" in config:
        try:
            TrainingConfig.from_stored(config["training"])
        except UsageError:
            return False
    return True


def _save(model, path):
    uncompiled = copy_model(model, model.dtype_policy)
    with whole_file(path) as partial:
        uncompiled.save(partial)

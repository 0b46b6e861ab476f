"""What lies in a model's folder, and how it gets there whole.

config.json         the resolved configuration
model.keras         the finished model
best.keras          the model that was best in validation
checkpoints/        of the training so far
logs/               for TensorBoard
metrics.jsonl       the same for scripts
learning_curves.png
"""

import json
import pathlib

from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.models.load_model import BEST_MODEL_FILE
from tpt_keras.models.load_model import MODEL_FILE

CONFIG_FILE = "config.json"


def write_config(model_dir, config):
    """Writes the configuration, or checks that it is the folder's own.

    Args:
        model_dir: The folder; made where it is not there.
        config: Dict of the resolved configuration.

    Raises:
        UsageError: If the folder has another configuration.
    """
    folder = pathlib.Path(model_dir)
    config = json.loads(json.dumps(config))
    if (folder / CONFIG_FILE).exists():
        differences = _differences(read_config(folder), config)
        if differences:
            raise UsageError(
                f"The folder {str(folder)!r} belongs to a training with "
                f"another configuration ({'; '.join(differences)}). Take the "
                "same one, or another --model_dir."
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    with whole_file(folder / CONFIG_FILE) as partial:
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
            "model folder. Train one with python -m experiments.train."
        )
    try:
        return json.loads(path.read_text())
    except ValueError:
        raise UsageError(
            f"The file {str(path)!r} is damaged. Restore it, or train into "
            "another folder."
        ) from None


def save_finished_model(model, model_dir, config):
    """Saves a model, under its final name only when it is whole.

    The model alone: what the optimizer keeps is in the checkpoints.

    Args:
        model: A `Transformer`.
        model_dir: The folder; made where it is not there.
        config: Dict of the resolved configuration.
    """
    write_config(model_dir, config)
    _save(model, pathlib.Path(model_dir) / MODEL_FILE)


def save_best_model(model, model_dir):
    """Saves the model that is the best so far, in place of the last one.

    Args:
        model: A `Transformer`.
        model_dir: The folder.
    """
    _save(model, pathlib.Path(model_dir) / BEST_MODEL_FILE)


def is_finished(model_dir):
    """Whether the folder holds a finished model."""
    return (pathlib.Path(model_dir) / MODEL_FILE).is_file()


def _differences(old, new, prefix=""):
    differences = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            differences += _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            differences.append(f"{prefix}{key}: {before} there, {after} here")
    return differences


def _save(model, path):
    uncompiled = type(model)(
        model.config, name=model.name, dtype=model.dtype_policy
    )
    uncompiled.set_weights(model.get_weights())
    with whole_file(path) as partial:
        uncompiled.save(partial)

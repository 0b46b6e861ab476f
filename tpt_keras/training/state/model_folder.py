"""The folder of a training and of its models.

config.json         the configuration; of a compressed model, and of one with
                    earlier weights put back, also its step
model.keras         the finished model
best.keras          the model with the best validation score
checkpoints/        files of arrays that the training resumes from
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
import re
import reprlib

import keras
import numpy as np

from tpt_keras.errors import UnreadableFileError
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
_CHECKPOINT = re.compile(r"ckpt-(\d+)\.npz")
_COUNTERS = ("step", "best_score", "seconds")

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def training_lock(model_dir):
    """Locks a folder for a training, and removes unfinished files."""
    folder = pathlib.Path(model_dir)
    with folder_lock(folder, "trains"):
        for each in (folder, folder / CHECKPOINTS):
            for partial in each.glob(f"{PARTIAL}*"):
                partial.unlink()
        yield


def write_config(model_dir, config):
    """Writes a configuration, unless the folder belongs to another training."""
    folder = pathlib.Path(model_dir)
    check_config(folder, config)
    write_text(folder / CONFIG_FILE, json.dumps(config, indent=2))


def read_config(model_dir):
    """Reads the configuration of a model's folder or name, a dict."""
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

    It is empty for a folder without one, such as a converted checkpoint's.
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
    """Refuses a folder whose training has another configuration."""
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
    if "training" in config:
        training = TrainingConfig.from_stored(config["training"]).flat()
        config = {**config, "training": training}
    # Without tuples, as a file has it.
    return json.loads(json.dumps(config))


def warn_of_changed_data(model_dir, fingerprints):
    """Logs how groups of data differ from those of a folder's training."""
    trained = read_config(model_dir).get("data") or fingerprints
    trained = {name: trained.get(name) for name in fingerprints}
    found = [text for _, text in differences(trained, fingerprints)]
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
            there, here = (
                value
                if value and isinstance(value, str)
                else reprlib.repr(value)
                for value in (before, after)
            )
            here = f"{here} here" if key in new else "not known here"
            yield name, f"{name}: {there} there, {here}"


def save_model(model, model_dir, best=False):
    """Saves the finished or the best model, without its optimizer."""
    uncompiled = copy_model(model, model.dtype_policy)
    path = pathlib.Path(model_dir) / (BEST_MODEL_FILE if best else MODEL_FILE)
    with whole_file(path) as partial:
        uncompiled.save(partial)


class TrainingState:
    """The weights, the optimizer, the seeds and the counters of a training.

    A checkpoint of them is a file of NumPy arrays, such as `ckpt-3.npz`.

    With several workers, each has a state and makes the same calls at the same
    time. The chief writes, and decides which checkpoint all of them restore.

    Args:
        trainer: A compiled `Trainer`, its optimizer built.
        folder: Folder of the checkpoints, shared by all workers.
        keep: Number of checkpoints to keep.

    Attributes:
        step: Optimizer steps so far, which is the position in the data, too.
        best_score: The best score so far; at first, less than any score.
        seconds: Duration of the training so far, in all its runs.
    """

    def __init__(self, trainer, folder, keep=3):
        self.step = 0
        self.best_score = -1.0
        self.seconds = 0.0
        self._trainer = trainer
        self._backend = trainer.backend
        self._folder = pathlib.Path(folder)
        self._keep = keep
        self._number = 0

    def improves(self, score):
        """Returns `True`, and keeps the score, if it is the best so far."""
        if not score > self.best_score:  # also for NaN
            return False
        self.best_score = float(score)
        return True

    def save(self):
        """Writes a checkpoint and removes the oldest ones."""
        if not self._backend.is_chief:
            return
        arrays = {
            name: _storable(keras.ops.convert_to_numpy(variable))
            for name, variable in self._variables().items()
        }
        arrays |= {name: np.array(getattr(self, name)) for name in _COUNTERS}
        # It replaces a damaged one if the one before that was restored.
        self._number += 1
        self._folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self._path(self._number)) as partial:
            np.savez(partial, **arrays)
        # Not those that are damaged, after the newest.
        numbers = checkpoint_numbers(self._folder)
        end = numbers.index(self._number) + 1
        for gone in numbers[end:] + numbers[: max(0, end - self._keep)]:
            self._path(gone).unlink(missing_ok=True)

    def _path(self, number):
        return self._folder / f"ckpt-{number}.npz"

    def restore(self):
        """Restores the newest checkpoint that is not damaged.

        Returns its path, or `None` if there is no checkpoint.

        Raises:
            UsageError: If all checkpoints are damaged, or if a worker cannot
                read the chief's.
        """
        numbers = (
            checkpoint_numbers(self._folder) if self._backend.is_chief else []
        )
        number, arrays = -len(numbers), None
        for candidate in reversed(numbers):
            arrays = self._read(candidate)
            if arrays:
                number = candidate
                break
        # All workers take the chief's, whatever they see of the folder.
        number = self._backend.broadcast(number)
        if number < 0:
            raise UsageError(
                f"All checkpoints in {str(self._folder)!r} are damaged. "
                "Restore them, or move the folder away to start anew.",
                path=self._folder,
            )
        if number == 0:
            return None
        if not self._backend.is_chief:
            arrays = self._read(number)
        path = self._path(number)
        if not arrays:
            raise UsageError(
                f"This worker cannot read {str(path)!r}, which the first one "
                "resumes from. `model_dir` must be on a disk that all share.",
                field="model_dir",
                path=path,
            )
        # All at once, because JAX compares the values of several processes.
        self._assign(arrays)
        # A barrier: now the chief may write and remove checkpoints again.
        self._backend.broadcast(number)
        self._number = number
        return path

    def _read(self, number):
        """Returns the arrays of a checkpoint, or `None` if it is damaged."""
        path = self._path(number)
        try:
            # NumPy does not close a damaged file.
            with reading(path), path.open("rb") as file:
                arrays = dict(np.load(file))
        except UnreadableFileError as error:
            _log.info("%s", error)
            return None
        shapes = {
            name: tuple(variable.shape)
            for name, variable in self._variables().items()
        }
        shapes |= dict.fromkeys(_COUNTERS, ())
        if shapes != {name: array.shape for name, array in arrays.items()}:
            _log.info("The checkpoint %s belongs to another model.", path)
            return None
        return arrays

    def _assign(self, arrays):
        with self._backend.scope():
            for name, variable in self._variables().items():
                variable.assign(arrays[name])
        for name in _COUNTERS:
            setattr(self, name, arrays[name].item())

    def _variables(self):
        # Keras's own names count the models of a process.
        owners = {
            # It has the states of the dropouts' seeds, too.
            "model": self._trainer.model,
            "optimizer": self._trainer.optimizer,
        }
        return {
            f"{owner}/{index}": variable
            for owner, layer in owners.items()
            for index, variable in enumerate(layer.variables)
        }


def _storable(array):
    # NumPy has no bfloat16.
    is_known = array.dtype.isbuiltin == 1
    return array if is_known else array.astype("float32")


def checkpoint_numbers(folder):
    """Returns the numbers of all checkpoints in a folder, the oldest first."""
    matches = [
        _CHECKPOINT.fullmatch(path.name)
        for path in pathlib.Path(folder).glob("ckpt-*.npz")
    ]
    return sorted(int(match[1]) for match in matches if match)

"""Checkpoints: everything that a training resumes from.

A checkpoint is a file `ckpt-3.npz` of NumPy arrays, the same on every backend.
It is written whole or not at all.
"""

import functools
import logging
import pathlib
import re

import keras
import numpy as np

from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.files import reading
from tpt_keras.files import whole_file

SUFFIX = ".npz"
_NAME = re.compile(rf"ckpt-(\d+){re.escape(SUFFIX)}")
_COUNTERS = ("step", "best_score", "seconds")
_log = logging.getLogger(__name__)


class TrainingState:
    """The state of a training, which its checkpoints hold.

    The state is the weights, the optimizer, the seeds, the step, which is the
    position in the data too, and the best score.

    With several workers, each has a state and makes the same calls at the same
    time. The chief writes, and decides which checkpoint all of them restore.

    Args:
        trainer: A compiled `Trainer`, its optimizer built.
        folder: Folder of the checkpoints, shared by all workers.
        keep: Number of checkpoints to keep.

    Attributes:
        step: Number of optimizer steps so far.
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
        self._keep_newest()

    def _keep_newest(self):
        """Removes old checkpoints, and damaged ones after the newest."""
        numbers = checkpoint_numbers(self._folder)
        end = numbers.index(self._number) + 1
        for gone in numbers[end:] + numbers[: max(0, end - self._keep)]:
            self._path(gone).unlink(missing_ok=True)

    def _path(self, number):
        return self._folder / f"ckpt-{number}{SUFFIX}"

    def restore(self):
        """Restores the newest checkpoint that is not damaged.

        Returns:
            Its path, or `None` if there is no checkpoint.

        Raises:
            UsageError: If all checkpoints are damaged, or if a worker cannot
                read the chief's.
        """
        numbers = (
            checkpoint_numbers(self._folder) if self._backend.is_chief else []
        )
        number, assign = -len(numbers), None
        for candidate in reversed(numbers):
            assign = self._read(candidate)
            if assign:
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
            assign = self._read(number)
        path = self._path(number)
        if not assign:
            raise UsageError(
                f"This worker cannot read {str(path)!r}, which the first one "
                "resumes from. `model_dir` must be on a disk that all share.",
                field="model_dir",
                path=path,
            )
        # All at once, because JAX compares the values of several processes.
        assign()
        # A barrier: now the chief may write and remove checkpoints again.
        self._backend.broadcast(number)
        self._number = number
        return path

    def _read(self, number):
        """Returns a function that restores a checkpoint; `None` if damaged."""
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
        return functools.partial(self._assign, arrays)

    def _assign(self, arrays):
        with self._backend.scope():
            for name, variable in self._variables().items():
                variable.assign(arrays[name])
        for name in _COUNTERS:
            setattr(self, name, arrays[name].item())

    def _variables(self):
        """Returns all variables by names that are the same in each process.

        Keras's own names count the models of a process.
        """
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
    """Returns an array that NumPy can store: it has no bfloat16."""
    is_known = array.dtype.isbuiltin == 1
    return array if is_known else array.astype("float32")


def checkpoint_numbers(folder):
    """Returns the numbers of all checkpoints in a folder, the oldest first."""
    matches = [
        _NAME.fullmatch(path.name)
        for path in pathlib.Path(folder).glob(f"ckpt-*{SUFFIX}")
    ]
    return sorted(int(match[1]) for match in matches if match)

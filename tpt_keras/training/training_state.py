import functools
import pathlib

import keras
import numpy as np

from tpt_keras.errors import UsageError
from tpt_keras.training import checkpoint_files
from tpt_keras.training.backends import broadcast
from tpt_keras.training.backends import is_chief
from tpt_keras.training.backends import scope
from tpt_keras.training.checkpoint_files import DamagedCheckpointError
from tpt_keras.training.checkpoint_files import checkpoint_names
from tpt_keras.training.checkpoint_files import checkpoint_number

_COUNTERS = ("step", "data_step", "best_score", "best_step", "seconds")


class TrainingState:
    """Everything that decides how a training goes on, and its checkpoints.

    Weights, optimizer, seeds, step, position in the data, best score. A
    checkpoint is a file of NumPy arrays, the same on every backend, and whole
    or not there.

    Of several workers, all have a state and do with it the same at the same
    time. The chief writes, and says which checkpoint all of them restore.

    Args:
        trainer: A compiled `Trainer`, its optimizer built.
        folder: Folder of the checkpoints, of all workers one and the same.
        keep: Number of checkpoints to keep.

    Attributes:
        step: Number of optimizer steps so far.
        data_step: Number of the next batch. Differs from the step after a
            rollback, which passes over batches.
        best_score: The best score so far; less than any before the first.
        best_step: Number of steps when it was reached.
        seconds: How long the training took so far, in all its runs.
    """

    def __init__(self, trainer, folder, keep=3):
        self.step = 0
        self.data_step = 0
        self.best_score = -1.0
        self.best_step = 0
        self.seconds = 0.0
        self._trainer = trainer
        self._strategy = trainer.strategy
        self._folder = pathlib.Path(folder)
        self._keep = keep
        self._number = 0
        self._is_chief = is_chief(self._strategy)

    def advance(self, steps):
        """Counts steps that were made."""
        self.step += steps
        self.data_step += steps

    def improves(self, score):
        """Whether a score is the best so far, which it is from now on."""
        if not score > self.best_score:  # NaN is none
            return False
        self.best_score = float(score)
        self.best_step = self.step
        return True

    def save(self):
        """Writes a checkpoint; removes what is more than are to be kept."""
        if not self._is_chief:
            return
        arrays = {
            name: _storable(keras.ops.convert_to_numpy(variable))
            for name, variable in self._variables().items()
        }
        arrays |= {name: np.array(getattr(self, name)) for name in _COUNTERS}
        # In the place of one that was damaged, if the one before it was read.
        self._number += 1
        name = f"ckpt-{self._number}"
        checkpoint_files.write_checkpoint(self._folder, name, arrays)
        checkpoint_files.keep_newest(self._folder, name, self._keep)

    def restore(self):
        """Restores the newest checkpoint that is whole, if there is any.

        Returns:
            Its path, or `None` if there is no checkpoint.

        Raises:
            UsageError: If there are checkpoints, all damaged, or if a worker
                cannot read the chief's.
        """
        names = checkpoint_names(self._folder) if self._is_chief else []
        number, assign = -len(names), None
        for name in reversed(names):
            assign = self._read(name)
            if assign:
                number = checkpoint_number(name)
                break
        # The same for all, whatever they see of the folder meanwhile.
        number = broadcast(self._strategy, number)
        if number < 0:
            raise UsageError(
                f"All checkpoints in {str(self._folder)!r} are damaged. "
                "Restore them, or move the folder away to start anew."
            )
        if number == 0:
            return None
        name = f"ckpt-{number}"
        path = str(self._folder / name)
        if not self._is_chief:
            assign = self._read(name)
        if not assign:
            raise UsageError(
                f"This worker cannot read {path!r}, which the first one goes "
                "on from: --model_dir must be on a disk that all share."
            )
        # All at once: JAX compares what several processes give a variable.
        assign()
        # Until all have read it, the chief must not write and remove others.
        broadcast(self._strategy, number)
        self._number = number
        return path

    def _read(self, name):
        """A function that restores a checkpoint.

        If it is damaged, says so and returns `None`.
        """
        try:
            arrays = checkpoint_files.read_checkpoint(self._folder, name)
            shapes = {
                name: tuple(variable.shape)
                for name, variable in self._variables().items()
            }
            shapes |= dict.fromkeys(_COUNTERS, ())
            if shapes != {name: array.shape for name, array in arrays.items()}:
                raise DamagedCheckpointError("it is of another model")
        except DamagedCheckpointError as error:
            print(f"The checkpoint {self._folder / name} is damaged ({error}).")
            return None
        return functools.partial(self._assign, arrays)

    def _assign(self, arrays):
        """Gives everything the values of a checkpoint."""
        with scope(self._strategy):
            for name, variable in self._variables().items():
                variable.assign(arrays[name])
        for name in _COUNTERS:
            setattr(self, name, arrays[name].item())

    def _variables(self):
        """All variables, by names that are the same in every process.

        Keras's own number the models that a process has made.
        """
        owners = {
            # With the states of the dropouts' seeds.
            "model": self._trainer.model,
            "optimizer": self._trainer.optimizer,
        }
        return {
            f"{owner}/{index}": variable
            for owner, layer in owners.items()
            for index, variable in enumerate(layer.variables)
        }


def _storable(array):
    """An array whose dtype NumPy's files know: bfloat16 is none."""
    is_known = array.dtype.isbuiltin == 1
    return array if is_known else array.astype("float32")

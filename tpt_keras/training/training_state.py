import pathlib

import tensorflow as tf

from tpt_keras.errors import UsageError
from tpt_keras.files import plain_path
from tpt_keras.training.distribution import is_chief
from tpt_keras.training.distribution import of_chief

# What reading a damaged checkpoint raises, depending on where the damage is.
_DAMAGE = (
    tf.errors.OpError,
    AssertionError,
    IndexError,
    RuntimeError,
    ValueError,
)


class TrainingState:
    """Everything that decides how a training goes on, and its checkpoints.

    Weights, optimizer, seeds, step, position in the data, best score. A
    checkpoint is whole or not there: TensorFlow writes it under temporary
    names and enters it into its list, atomically, when it is whole.

    Of several workers, all have a state and do with it the same at the same
    time. The chief writes, and says which checkpoint all of them restore.

    Args:
        trainer: A compiled `TransformerTrainer`, its optimizer built.
        folder: Folder of the checkpoints, of all workers one and the same.
        keep: Number of checkpoints to keep.
    """

    def __init__(self, trainer, folder, keep=3):
        self.step = tf.Variable(0, dtype=tf.int64)
        # Differs from the step after a rollback, which passes over batches.
        self.data_step = tf.Variable(0, dtype=tf.int64)
        self.best_score = tf.Variable(-1.0, dtype=tf.float32)
        self.best_step = tf.Variable(0, dtype=tf.int64)
        self._strategy = trainer.distribute_strategy
        self._folder = pathlib.Path(folder)
        self._checkpoint = tf.train.Checkpoint(
            model=trainer.transformer,
            optimizer=trainer.optimizer,
            # The states of the dropouts' seeds, which Keras does not track.
            seeds=trainer.transformer.non_trainable_variables,
            step=self.step,
            data_step=self.data_step,
            best_score=self.best_score,
            best_step=self.best_step,
        )
        self._is_chief = is_chief(self._strategy)
        if self._is_chief:
            if _list_is_damaged(folder):
                # What it lists is found without it, see `checkpoint_names`.
                (self._folder / "checkpoint").unlink()
            self._manager = tf.train.CheckpointManager(
                self._checkpoint, plain_path(folder), max_to_keep=keep
            )

    def advance(self, steps):
        """Counts steps that were made."""
        self.step.assign_add(steps)
        self.data_step.assign_add(steps)

    def improves(self, score):
        """Whether a score is the best so far, which it is from now on."""
        if not score > float(self.best_score):  # NaN is none
            return False
        self.best_score.assign(score)
        self.best_step.assign(self.step)
        return True

    def save(self):
        """Writes a checkpoint; removes what is more than are to be kept."""
        if not self._is_chief:
            return
        # Where the manager is given a link, it does not make the folder.
        self._folder.mkdir(parents=True, exist_ok=True)
        self._manager.save()

    def restore(self):
        """Restores the newest checkpoint that is whole, if there is any.

        Returns:
            Its path, or `None` if there is no checkpoint.

        Raises:
            UsageError: If there are checkpoints, all damaged, or if a worker
                cannot read the chief's.
        """
        names = checkpoint_names(self._folder) if self._is_chief else []
        restored = next(filter(self._restores, reversed(names)), None)
        # The same for all, whatever they see of the folder meanwhile.
        number = _number(restored) if restored else -len(names)
        number = of_chief(self._strategy, number)
        if number < 0:
            raise UsageError(
                f"All checkpoints in {str(self._folder)!r} are damaged. "
                "Restore them, or move the folder away to start anew."
            )
        if number == 0:
            return None
        name = f"ckpt-{number}"
        path = str(self._folder / name)
        if not self._is_chief and not self._restores(name):
            raise UsageError(
                f"This worker cannot read {path!r}, which the first one goes "
                "on from: --model_dir must be on a disk that all share."
            )
        # Until all have read it, the chief must not write and remove others.
        of_chief(self._strategy, number)
        return path

    def _restores(self, name):
        """Restores a checkpoint; says so and returns false if damaged."""
        try:
            status = self._checkpoint.restore(
                str(plain_path(self._folder) / name)
            )
            status.assert_existing_objects_matched()
        except _DAMAGE as error:
            reason = str(error).split("\n")[0]
            print(
                f"The checkpoint {self._folder / name} is damaged ({reason})."
            )
            return False
        return True


def _list_is_damaged(folder):
    """Whether TensorFlow's list of checkpoints is there and not readable."""
    try:
        tf.train.get_checkpoint_state(folder)
    except ValueError:
        return True
    return False


def checkpoint_names(folder):
    """Names of all checkpoints of a training.

    Args:
        folder: Their folder, there or not.

    Returns:
        List, the oldest first.
    """
    folder = pathlib.Path(folder)
    listed = None
    if not _list_is_damaged(folder):
        listed = tf.train.get_checkpoint_state(folder)
    if listed is not None:
        paths = map(pathlib.Path, listed.all_model_checkpoint_paths)
        return [path.name for path in paths]
    # Nothing yet, or TensorFlow's list is lost: then the files themselves.
    names = [path.stem for path in folder.glob("ckpt-*.index")]
    if names == ["ckpt-1"]:
        # It is of no step yet, and a full disk may have cut it off.
        return []
    return sorted(names, key=_number)


def _number(name):
    """The number that a checkpoint's name ends with."""
    return int(name.split("-")[-1])

import pathlib

import tensorflow as tf

from tpt_keras.errors import UsageError
from tpt_keras.files import plain_path

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

    Args:
        trainer: A compiled `TransformerTrainer`, its optimizer built.
        folder: Folder that checkpoints are written to.
        keep: Number of checkpoints to keep.
    """

    def __init__(self, trainer, folder, keep=3):
        self.step = tf.Variable(0, dtype=tf.int64)
        # Differs from the step after a rollback, which passes over batches.
        self.data_step = tf.Variable(0, dtype=tf.int64)
        self.best_score = tf.Variable(-1.0, dtype=tf.float32)
        self.best_step = tf.Variable(0, dtype=tf.int64)
        self._folder = pathlib.Path(folder)
        if _list_is_damaged(folder):
            # What it lists is found without it, see `_checkpoint_names`.
            (self._folder / "checkpoint").unlink()
        self._checkpoints = tf.train.CheckpointManager(
            tf.train.Checkpoint(
                model=trainer.transformer,
                optimizer=trainer.optimizer,
                # The states of the dropouts' seeds, which Keras does not track.
                seeds=trainer.transformer.non_trainable_variables,
                step=self.step,
                data_step=self.data_step,
                best_score=self.best_score,
                best_step=self.best_step,
            ),
            plain_path(folder),
            max_to_keep=keep,
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
        # Where the manager is given a link, it does not make the folder.
        self._folder.mkdir(parents=True, exist_ok=True)
        self._checkpoints.save()

    def restore(self, folder=None):
        """Restores the newest checkpoint that is whole, if there is any.

        Args:
            folder: Folder to restore from. Defaults to the one that is written
                to.

        Returns:
            Its path, or `None` if there is no checkpoint.

        Raises:
            UsageError: If there are checkpoints, all damaged.
        """
        folder = pathlib.Path(folder or self._folder)
        names = _checkpoint_names(folder)
        for name in reversed(names):
            path = str(folder / name)
            try:
                status = self._checkpoints.checkpoint.restore(
                    str(plain_path(folder) / name)
                )
                status.assert_existing_objects_matched()
            except _DAMAGE as error:
                reason = str(error).split("\n")[0]
                print(f"The checkpoint {path} is damaged ({reason}).")
            else:
                return path
        if names:
            raise UsageError(
                f"All checkpoints in {str(folder)!r} are damaged. Restore "
                "them, or move the folder away to start anew."
            )
        return None


def _list_is_damaged(folder):
    """Whether TensorFlow's list of checkpoints is there and not readable."""
    try:
        tf.train.get_checkpoint_state(folder)
    except ValueError:
        return True
    return False


def _checkpoint_names(folder):
    """Names of all checkpoints, the oldest first."""
    listed = tf.train.get_checkpoint_state(folder)
    if listed is not None:
        paths = map(pathlib.Path, listed.all_model_checkpoint_paths)
        return [path.name for path in paths]
    # Nothing yet, or TensorFlow's list is lost: then the files themselves.
    names = [path.stem for path in folder.glob("ckpt-*.index")]
    if names == ["ckpt-1"]:
        # It is of no step yet, and a full disk may have cut it off.
        return []
    return sorted(names, key=lambda name: int(name.split("-")[-1]))

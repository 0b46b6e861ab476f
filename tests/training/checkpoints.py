"""What lies in a training's checkpoints."""

from tpt_keras.training.checkpoint_files import checkpoint_names
from tpt_keras.training.checkpoint_files import read_checkpoint
from tpt_keras.training.model_folder import CHECKPOINTS


def checkpoints_of(model_dir):
    """Names of a training's checkpoints, the oldest first."""
    return checkpoint_names(model_dir / CHECKPOINTS)


def newest_checkpoint(model_dir):
    """The arrays of a training's newest checkpoint, by name."""
    newest = checkpoints_of(model_dir)[-1]
    return read_checkpoint(model_dir / CHECKPOINTS, newest)

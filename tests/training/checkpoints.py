"""Checkpoints of trainings."""

import numpy as np

from tpt_keras.training.state.checkpoints import checkpoint_numbers
from tpt_keras.training.state.model_folder import CHECKPOINTS


def checkpoints_of(model_dir):
    """Files of a training's checkpoints, the oldest first."""
    folder = model_dir / CHECKPOINTS
    return [folder / f"ckpt-{n}.npz" for n in checkpoint_numbers(folder)]


def newest_checkpoint(model_dir):
    """The arrays of a training's newest checkpoint, by name."""
    with checkpoints_of(model_dir)[-1].open("rb") as file:
        return dict(np.load(file))

"""Checkpoints of versions up to 0.3, which were TensorFlow's own."""

import tensorflow as tf

from tpt_keras.files import plain_path
from tpt_keras.training.checkpoint_files import DamagedCheckpointError

# What reading a damaged one raises, depending on where the damage is.
_DAMAGE = (
    tf.errors.OpError,
    AssertionError,
    IndexError,
    RuntimeError,
    ValueError,
)


def restore(trainer, folder, name):
    """Restores a trainer from one of TensorFlow's checkpoints.

    Args:
        trainer: A compiled `TransformerTrainer`, its optimizer built.
        folder: Folder of the checkpoint.
        name: Its name, like `"ckpt-3"`.

    Returns:
        Dict of the numbers beside the variables: `step`, `data_step`,
        `best_score` and `best_step`.

    Raises:
        DamagedCheckpointError: If it is damaged. What it was to restore may
            have been restored in part.
    """
    counters = {
        "step": tf.Variable(0, dtype=tf.int64),
        "data_step": tf.Variable(0, dtype=tf.int64),
        "best_score": tf.Variable(-1.0, dtype=tf.float32),
        "best_step": tf.Variable(0, dtype=tf.int64),
    }
    checkpoint = tf.train.Checkpoint(
        model=trainer.transformer,
        optimizer=trainer.optimizer,
        # The states of the dropouts' seeds, which Keras does not track.
        seeds=trainer.transformer.non_trainable_variables,
        **counters,
    )
    try:
        status = checkpoint.restore(str(plain_path(folder) / name))
        status.assert_existing_objects_matched()
    except _DAMAGE as error:
        raise DamagedCheckpointError(str(error).split("\n")[0]) from error
    return {name: number.numpy().item() for name, number in counters.items()}

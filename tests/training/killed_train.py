"""`experiments.train`, killed in the middle of writing a checkpoint.

python -m tests.training.killed_train <where> <checkpoint> <flags>

`where` is `merge`: the data is written under temporary names, and the final
ones are missing; or `list`: the files are there, and not in TensorFlow's list.
"""

import os
import runpy
import signal
import sys

from tensorflow.python.checkpoint import checkpoint_management
from tensorflow.python.ops import gen_io_ops


def kill_at(where, checkpoint):
    """Makes this process kill itself.

    Args:
        where: `"merge"` or `"list"`.
        checkpoint: Which of the checkpoints that the process writes it is,
            counting from 1.
    """
    merge = gen_io_ops.merge_v2_checkpoints
    update_list = checkpoint_management.update_checkpoint_state_internal
    written = 0

    def merge_or_die(*args, **kwargs):
        nonlocal written
        written += 1
        if where == "merge" and written == checkpoint:
            os.kill(os.getpid(), signal.SIGKILL)
        return merge(*args, **kwargs)

    def update_list_or_die(*args, **kwargs):
        if where == "list" and written == checkpoint:
            os.kill(os.getpid(), signal.SIGKILL)
        return update_list(*args, **kwargs)

    gen_io_ops.merge_v2_checkpoints = merge_or_die
    checkpoint_management.update_checkpoint_state_internal = update_list_or_die


if __name__ == "__main__":
    _, where, checkpoint, *flags = sys.argv
    kill_at(where, int(checkpoint))
    sys.argv = ["train", *flags]
    runpy.run_module("experiments.train", run_name="__main__")

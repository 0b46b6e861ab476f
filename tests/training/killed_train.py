"""`experiments.train`, killed in the middle of writing a checkpoint.

python -m tests.training.killed_train <where> <checkpoint> <flags>

`where` is `data`: half of it is written, under a temporary name; or `oldest`:
the file is there, and the oldest one not yet removed.
"""

import os
import pathlib
import runpy
import signal
import sys

import numpy as np


def kill_at(where, checkpoint):
    """Makes this process kill itself.

    Args:
        where: `"data"` or `"oldest"`.
        checkpoint: Which of the checkpoints that the process writes it is,
            counting from 1.
    """
    from tpt_keras.training.state.checkpoints import TrainingState

    save, keep_newest = np.savez, TrainingState._keep_newest
    written = 0

    def save_or_die(path, **arrays):
        nonlocal written
        written += 1
        save(path, **arrays)
        if where == "data" and written == checkpoint:
            path = pathlib.Path(path)
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    def keep_newest_or_die(self):
        if where == "oldest" and written == checkpoint:
            os.kill(os.getpid(), signal.SIGKILL)
        keep_newest(self)

    np.savez = save_or_die
    TrainingState._keep_newest = keep_newest_or_die


if __name__ == "__main__":
    _, where, checkpoint, *flags = sys.argv
    kill_at(where, int(checkpoint))
    sys.argv = ["train", *flags]
    runpy.run_module("experiments.train", run_name="__main__")

"""Trains on disks that are too small, and goes on whenever they have grown.

In a process of its own, which may mount a file system:

unshare --map-root-user --mount python -m tests.training.full_disk_driver <job>

The job is JSON: `folder`, to mount the disks on; `disks`, for each the sizes
that it has one after the other, in KiB; and `data_dir`. For each disk it prints
a line of JSON: what ended the training at each size, and whether at last, when
there was room, it ended as one that nothing disturbed.
"""

import contextlib
import io
import json
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf

from tests.conftest import MODULE
from tpt_keras.models import PRESETS
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.train import train

ROOM = 10_000


def main(job):
    """Does a job, as the module's docstring describes it."""
    # To trace them would take much longer than the two steps do.
    tf.config.run_functions_eagerly(True)
    folder = pathlib.Path(job["folder"])
    folder.mkdir()
    tmpfs = ("mount", "-t", "tmpfs", "-o", f"size={ROOM}k", "tmpfs", folder)
    _run(*tmpfs)
    expected = _train(job["data_dir"], folder / "model")
    _run("umount", folder)
    for sizes in job["disks"]:
        _run(*tmpfs)
        errors = []
        for size in sizes:
            _resize(folder, size)
            try:
                _train(job["data_dir"], folder / "model")
                errors.append(None)
            except Exception as caught:
                errors.append(f"{type(caught).__name__}: {caught}")
        _resize(folder, ROOM)
        weights = _train(job["data_dir"], folder / "model")
        is_same = all(map(np.array_equal, weights, expected))
        print(json.dumps({"errors": errors, "is_same": is_same}))
        _run("umount", folder)


def _resize(folder, size):
    _run("mount", "-o", f"remount,size={size}k", "tmpfs", folder)


def _train(data_dir, model_dir):
    """The weights that a small training ends with."""
    with contextlib.redirect_stdout(io.StringIO()):
        model = train(
            PRESETS["tp_transformer_tiny"].replace(
                hidden_dim=16, intermediate_dim=32, num_heads=2, num_layers=1
            ),
            TrainingConfig.from_flat(
                modules=(MODULE,),
                data_dir=data_dir,
                train_steps=2,
                steps_per_checkpoint=1,
                batch_size=16,
                validation_examples=20,
                evaluation_examples=20,
                keep_checkpoints=2,
            ),
            model_dir,
        ).model
    return model.get_weights()


def _run(*command):
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

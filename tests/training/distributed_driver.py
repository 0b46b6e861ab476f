"""Trains on several devices, in a process of its own.

A backend fixes its devices when it starts, and a worker is a process.

python -m tests.training.distributed_driver <job as JSON>
"""

import contextlib
import json
import logging
import pathlib
import sys
import unittest.mock

import keras
import numpy as np

from tpt_keras.models import PRESETS
from tpt_keras.training.backends import make_strategy
from tpt_keras.training.callbacks import FiniteLoss
from tpt_keras.training.callbacks import NonFiniteLossError
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.train import train


def train_and_record(model, training, model_dir, options=None, strategy=None):
    """Trains and returns everything that is to be compared.

    Args:
        model: Dict of a `preset` and of the fields to change of it.
        training: Dict of the fields of a `TrainingConfig`.
        model_dir: Folder of the training.
        options: Dict of further ones.
        strategy: A strategy.

    Returns:
        Dict of arrays: `metrics/<name>`, one number for every row that has
        it, and `weights/<path>`.
    """
    changes = dict(model)
    preset = PRESETS[changes.pop("preset")]
    trained = train(
        preset.replace(**changes),
        TrainingConfig.from_flat(**training, **(options or {})),
        model_dir,
        strategy=strategy,
    ).model
    record = {}
    for weight in trained.weights:
        # Less the model's name, to which Keras adds a number.
        record[f"weights/{weight.path.partition('/')[2]}"] = weight.numpy()
    rows = read_metrics(model_dir)
    for name in {name for row in rows for name in row}:
        if not name.endswith("_per_second"):
            record[f"metrics/{name}"] = np.array(
                [row[name] for row in rows if name in row]
            )
    return record


@contextlib.contextmanager
def nan_before(step):
    """A weight is NaN before a step, the first time that it comes to it."""
    is_over = False

    def on_train_batch_begin(self, batch, logs=None):
        nonlocal is_over
        if keras.backend.backend() == "jax":
            # Within `fit`, variables have no values there.
            self.model.jax_state_sync()
        if not is_over and self.model.optimizer.iterations.numpy() + 1 == step:
            is_over = True
            weight = self.model.model.trainable_variables[0]
            # As an array, JAX would not take it from several processes: it
            # does not equal itself.
            weight.assign(weight.value * np.nan)

    with unittest.mock.patch.object(
        FiniteLoss, "on_train_batch_begin", on_train_batch_begin
    ):
        yield


def main(job):
    """Runs the trainings of a job, each into a folder and an .npz beside it.

    Args:
        job: Dict of `strategy`, `make_strategy`'s arguments, and `trainings`,
            dicts of `train_and_record`'s, of `record`, the .npz, and where
            that is wanted of `nan_before`, a step. A training that stops there
            has no record.
    """
    strategy = make_strategy(**job["strategy"])
    for training in job["trainings"]:
        path = pathlib.Path(training.pop("record"))
        step = training.pop("nan_before", 0)
        with nan_before(step):
            try:
                record = train_and_record(**training, strategy=strategy)
            except NonFiniteLossError as error:
                print(error)
            else:
                np.savez(path, **record)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    main(json.loads(sys.argv[1]))

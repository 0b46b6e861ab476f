"""Trainings of other processes, and what trainings leave."""

import json

import numpy as np
import pytest

from tests.conftest import MODULE
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.state.model_folder import CHECKPOINTS
from tpt_keras.training.state.model_folder import TrainingState
from tpt_keras.training.state.model_folder import checkpoint_numbers

# A model that is traced in less than half of the time.
SIMPLE_MODEL = (
    "--preset=lstm",
    "--hparams=hidden_dim=16,thinking_steps=1,dropout=0.1,"
    "answer_order=units_first",
)


def flags_of(data_dir, model_dir, **fields):
    """The command line of `experiments.train`."""
    fields = {
        "modules": MODULE,
        "data_dir": data_dir,
        "model_dir": model_dir,
        **fields,
    }
    return [f"--{name}={value}" for name, value in fields.items()]


def write_config(folder, **fields):
    """Writes the configuration of a training with these fields."""
    stored = TrainingConfig.from_flat(**fields).to_stored()
    (folder / "config.json").write_text(json.dumps({"training": stored}))


def timeless_metrics(model_dir):
    """The log without the values that depend on the machine."""
    return [
        {
            k: v
            for k, v in row.items()
            if k not in ("minutes", "waiting_for_data")
            and not k.endswith("_per_second")
        }
        for row in read_metrics(model_dir)
    ]


def checkpoints_of(model_dir):
    """Files of a training's checkpoints, the oldest first."""
    folder = model_dir / CHECKPOINTS
    return [folder / f"ckpt-{n}.npz" for n in checkpoint_numbers(folder)]


def newest_checkpoint(model_dir):
    """The arrays of a training's newest checkpoint, by name."""
    with checkpoints_of(model_dir)[-1].open("rb") as file:
        return dict(np.load(file))


def assert_same_weights(*models):
    """Two models, or their `get_weights`, are equal."""
    ours, theirs = (
        model if isinstance(model, list) else model.get_weights()
        for model in models
    )
    for weight, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(weight, other)


class KilledError(Exception):
    """Ends a training in the middle."""


def train_in_two(monkeypatch, train, *arguments):
    """A training that is killed at its first checkpoint, and resumed."""
    save = TrainingState.save

    def save_and_die(self):
        save(self)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(TrainingState, "save", save_and_die)
        with pytest.raises(KilledError):
            train(*arguments)
    return train(*arguments)

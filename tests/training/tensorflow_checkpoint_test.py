"""Trainings of versions whose checkpoints were TensorFlow's own go on."""

import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.training.training_state_test import assert_values
from tests.training.training_state_test import scramble
from tests.training.training_state_test import truncate
from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.training.pytorch_adam import PyTorchAdam
from tpt_keras.training.training_state import TrainingState
from tpt_keras.training.transformer_trainer import TransformerTrainer

DATA, INDEX = ".data-00000-of-00001", ".index"


@pytest.fixture(scope="module")
def trainer(tiny_config):
    transformer = Transformer(tiny_config.replace(dropout=0.1))
    trainer = TransformerTrainer(transformer)
    trainer.compile(optimizer=PyTorchAdam(1e-4), jit_compile=False)
    trainer.optimizer.build(transformer.trainable_variables)
    return trainer


@pytest.fixture(scope="module")
def saved(tmp_path_factory, trainer):
    """A folder of three checkpoints of version 0.3, and the values in them."""
    folder = tmp_path_factory.mktemp("old") / "run[1]"
    state = TrainingState(trainer, folder)
    numbers = {
        "step": tf.Variable(0, dtype=tf.int64),
        "data_step": tf.Variable(0, dtype=tf.int64),
        "best_score": tf.Variable(-1.0, dtype=tf.float32),
        "best_step": tf.Variable(0, dtype=tf.int64),
    }
    checkpoint = tf.train.Checkpoint(
        model=trainer.transformer,
        optimizer=trainer.optimizer,
        seeds=trainer.transformer.non_trainable_variables,
        **numbers,
    )
    manager = tf.train.CheckpointManager(checkpoint, str(folder), 5)
    values = []
    for seed in range(3):
        values.append(scramble(state, trainer, seed))
        for name, number in numbers.items():
            number.assign(getattr(state, name))
        manager.save()
    return folder, values


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to damage."""
    return pathlib.Path(shutil.copytree(saved[0], tmp_path / "run[1]"))


@pytest.fixture
def state(folder, trainer):
    """A state that has nothing of what was saved."""
    state = TrainingState(trainer, folder, keep=2)
    scramble(state, trainer, seed=99)
    return state


@pytest.mark.slow
def test_goes_on_in_new_ones(saved, folder, state, trainer, capsys):
    assert state.restore() == str(folder / "ckpt-3")
    assert_values(state, trainer, saved[1][2])
    state.save()
    names = {path.name for path in folder.iterdir()}
    old = {"checkpoint", f"ckpt-3{DATA}", f"ckpt-3{INDEX}"}
    assert names == {"ckpt-4.npz", *old}
    # The old one still is the one before.
    truncate(folder / "ckpt-4.npz", 0.5)
    scramble(state, trainer, seed=98)
    assert state.restore() == str(folder / "ckpt-3")
    assert_values(state, trainer, saved[1][2])
    assert "ckpt-4 is damaged" in capsys.readouterr().out
    state.save()
    state.save()
    names = {path.name for path in folder.iterdir()}
    assert names == {"ckpt-4.npz", "ckpt-5.npz"}


@pytest.mark.parametrize("suffix", [DATA, INDEX])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_one_before_a_damaged_one(
    saved, folder, state, trainer, capsys, suffix, share
):
    truncate(folder / f"ckpt-3{suffix}", share)
    assert state.restore() == str(folder / "ckpt-2")
    assert_values(state, trainer, saved[1][1])
    assert "ckpt-3 is damaged (" in capsys.readouterr().out
    values = scramble(state, trainer, seed=97)
    state.save()
    scramble(state, trainer, seed=96)
    # In the place of the damaged one.
    assert state.restore() == str(folder / "ckpt-3")
    assert_values(state, trainer, values)


def test_the_first_one_alone_may_be_cut_off(tmp_path, trainer, capsys):
    """What a disk leaves that was full at once: nothing is lost."""
    (tmp_path / f"ckpt-1{INDEX}").touch()
    state = TrainingState(trainer, tmp_path)
    values = scramble(state, trainer, seed=1)
    assert state.restore() is None
    assert_values(state, trainer, values)
    state.save()
    assert state.restore() == str(tmp_path / "ckpt-1")
    assert capsys.readouterr().out == ""


def test_another_backend_says_who_reads_them(
    saved, folder, state, trainer, monkeypatch
):
    values = [np.array(value) for value in scramble(state, trainer, seed=1)]
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(UsageError, match=r"older version.*=tensorflow reads"):
        state.restore()
    assert_values(state, trainer, values)

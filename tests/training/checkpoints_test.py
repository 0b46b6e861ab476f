import pathlib
import shutil

import keras
import numpy as np
import pytest

from tests.refusals import refused
from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.training.backends import CurrentBackend
from tpt_keras.training.state.model_folder import TrainingState
from tpt_keras.training.trainer import Trainer


@pytest.fixture(scope="module")
def trainer(tiny_config):
    transformer = Transformer(tiny_config.replace(dropout=0.1))
    trainer = Trainer(transformer)
    trainer.compile("adam", jit_compile=False)
    trainer.optimizer.build(transformer.trainable_variables)
    return trainer


COUNTERS = ("step", "best_score", "seconds")


def everything(trainer):
    """All variables that decide how a training goes on."""
    return [*trainer.model.variables, *trainer.optimizer.variables]


def scramble(state, trainer, seed):
    """Gives everything another value; returns the values."""
    rng = np.random.default_rng(seed)
    values = []
    for variable in everything(trainer):
        values.append(
            rng.integers(1, 1000, tuple(variable.shape)).astype(variable.dtype)
        )
        variable.assign(values[-1])
    for name in COUNTERS:
        values.append(int(rng.integers(1, 1000)))
        setattr(state, name, values[-1])
    return values


def assert_values(state, trainer, values):
    variables = everything(trainer)
    found = [keras.ops.convert_to_numpy(variable) for variable in variables]
    found += [getattr(state, name) for name in COUNTERS]
    for value, expected in zip(found, values, strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, trainer):
    """A folder of three checkpoints, and the values in them."""
    folder = tmp_path_factory.mktemp("saved")
    state = TrainingState(trainer, folder)
    values = []
    for seed in range(3):
        values.append(scramble(state, trainer, seed))
        state.save()
    return folder, values


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to damage, whose name looks like a pattern."""
    return pathlib.Path(shutil.copytree(saved[0], tmp_path / "run[1]*"))


@pytest.fixture
def state(folder, trainer):
    """A state that has nothing of what was saved."""
    state = TrainingState(trainer, folder)
    scramble(state, trainer, seed=99)
    return state


def flip_byte(path, share):
    content = bytearray(path.read_bytes())
    content[int(share * (len(content) - 1))] ^= 0x10
    path.write_bytes(content)


def truncate(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


def names(folder):
    return {path.name for path in folder.iterdir()}


def of_another_model(path, _):
    np.savez(path, step=np.array(3))


DAMAGES = [
    *((truncate, share) for share in (0.0, 0.5, 0.999)),
    *((flip_byte, share) for share in (0.0, 0.5)),
    (of_another_model, None),
]


def test_newest_checkpoint_is_restored(saved, folder, state, trainer, logged):
    assert state.restore() == folder / "ckpt-3.npz"
    assert_values(state, trainer, saved[1][2])
    assert logged() == ""


@pytest.mark.parametrize(("damage", "share"), DAMAGES)
def test_damaged_checkpoint_is_replaced_by_the_one_before(
    saved, folder, state, trainer, logged, damage, share
):
    damage(folder / "ckpt-3.npz", share)
    assert state.restore() == folder / "ckpt-2.npz"
    assert_values(state, trainer, saved[1][1])
    assert str(folder / "ckpt-3.npz") in logged()
    # The next one takes the place of the damaged one.
    values = scramble(state, trainer, seed=97)
    state.save()
    again = TrainingState(trainer, folder)
    scramble(again, trainer, seed=96)
    assert again.restore() == folder / "ckpt-3.npz"
    assert_values(again, trainer, values)
    assert logged() == ""


def test_two_damaged_checkpoints_are_skipped(
    saved, folder, state, trainer, logged
):
    flip_byte(folder / "ckpt-2.npz", 0.5)
    truncate(folder / "ckpt-3.npz", 0.5)
    assert state.restore() == folder / "ckpt-1.npz"
    assert_values(state, trainer, saved[1][0])
    printed = logged()
    assert str(folder / "ckpt-2") in printed
    assert str(folder / "ckpt-3") in printed
    # The damaged ones make room: or they would be taken for newer ones.
    state.save()
    assert names(folder) == {"ckpt-1.npz", "ckpt-2.npz"}


def test_all_checkpoints_damaged_is_refused(folder, state):
    for number in (1, 2, 3):
        truncate(folder / f"ckpt-{number}.npz", 0.5)
    with refused(path=folder, part=repr(str(folder))):
        state.restore()


@pytest.mark.parametrize("is_worker", [False, True])
def test_restore_without_a_checkpoint_changes_nothing(
    tmp_path, trainer, logged, as_worker, is_worker
):
    if is_worker:
        as_worker(0)
    state = TrainingState(trainer, tmp_path / "none")
    values = scramble(state, trainer, seed=1)
    assert state.restore() is None
    assert_values(state, trainer, values)
    assert logged() == ""
    # A worker writes nothing.
    state.save()
    assert bool(list(tmp_path.iterdir())) != is_worker


@pytest.mark.parametrize("keep", [1, 2, 4])
def test_newest_checkpoints_are_kept(tmp_path, trainer, keep):
    state = TrainingState(trainer, tmp_path, keep)
    # The newest has the largest number, not the last name of an alphabet.
    for step in range(1, 11):
        state.step = step
        state.save()
    assert names(tmp_path) == {f"ckpt-{n}.npz" for n in range(11 - keep, 11)}
    state.step = 0
    state.restore()
    assert state.step == 10


def test_state_keeps_the_best_score(tmp_path, trainer):
    state = TrainingState(trainer, tmp_path)
    for score, improves in ((0.0, 1), (0.0, 0), (0.25, 1), (float("nan"), 0)):
        assert state.improves(score) == improves
    assert state.best_score == 0.25


@pytest.fixture
def as_worker(monkeypatch):
    """Makes states those of a worker, and the chief say a number."""

    def as_worker(number):
        monkeypatch.setattr(CurrentBackend, "is_chief", False)
        monkeypatch.setattr(CurrentBackend, "broadcast", lambda *_: number)

    return as_worker


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("number", [1, 3])
def test_worker_restores_the_chiefs_checkpoint(
    saved, folder, trainer, as_worker, number
):
    """Whatever it sees itself: the chief may be ahead of it, or behind."""
    as_worker(number)
    before = files(folder)
    state = TrainingState(trainer, folder)
    scramble(state, trainer, seed=99)
    assert state.restore() == folder / f"ckpt-{number}.npz"
    assert_values(state, trainer, saved[1][number - 1])
    assert files(folder) == before


@pytest.mark.parametrize("number", [4, -3])
def test_worker_without_the_chiefs_checkpoint_is_refused(
    folder, trainer, as_worker, number
):
    """It cannot be read here, or all are damaged."""
    as_worker(number)
    state = TrainingState(trainer, folder)
    with pytest.raises(UsageError):
        state.restore()


def test_chief_waits_until_all_have_restored(folder, trainer, monkeypatch):
    """It removes old checkpoints, which the others may still be reading."""
    asked = []
    monkeypatch.setattr(
        CurrentBackend,
        "broadcast",
        lambda _, number: asked.append(state.step) or number,
    )
    state = TrainingState(trainer, folder)
    scramble(state, trainer, seed=99)
    before = state.step
    state.restore()
    # Once with what it has read, for them to, and once when all have restored:
    # on JAX, none of them gets through with that alone.
    assert before != state.step
    assert asked == [before, state.step]

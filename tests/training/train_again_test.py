"""Trainings that find something in their folder, or start from another's."""

import contextlib
import io
import json
import pathlib
import shutil

import keras
import numpy as np
import pytest

from tests.conftest import MODULE
from tpt_keras.data_generators import training_task
from tpt_keras.errors import UsageError
from tpt_keras.files import folder_lock
from tpt_keras.models.load_model import load_model
from tpt_keras.training import problem_task
from tpt_keras.training import train as train_module
from tpt_keras.training.run import TrainingRun
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.train import train

pytestmark = pytest.mark.usefixtures("without_graphs")


@pytest.fixture(scope="module", autouse=True)
def unevaluated():
    """Trainings whose evaluations take no time; the first is the best."""
    score = {"loss": 1.0, "sequence_accuracy": 0.5, "token_accuracy": 0.5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            problem_task, "evaluate_batches", lambda *args: dict(score)
        )
        yield


@pytest.fixture
def unfitted(monkeypatch):
    """Trainings that are over before the first step."""
    monkeypatch.setattr(TrainingRun, "run", lambda self: None)


@pytest.fixture(scope="module")
def model_config(tiny_config):
    return tiny_config.replace(dropout=0.1)


@pytest.fixture(scope="module")
def training(tiny_training):
    """Three steps, the last of them an interval of its own."""
    return tiny_training.replace(train_steps=3, steps_per_checkpoint=2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, model_config, training):
    """The folder of a finished training; its best model is not its last."""
    folder = tmp_path_factory.mktemp("finished") / "model"
    with contextlib.redirect_stdout(io.StringIO()):
        train(model_config, training, folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of it."""
    return pathlib.Path(shutil.copytree(finished, tmp_path / "copy"))


def assert_same_weights(model, other):
    for ours, theirs in zip(
        model.get_weights(), other.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def contents(folder):
    """Everything in a folder, but for the lock that trainings take."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.slow
def test_one_process_at_a_time(
    folder, tmp_path, model_config, training, logged
):
    longer = training.replace(train_steps=4)
    before = contents(folder)
    with folder_lock(folder, "trains"):
        for _ in range(2):
            with pytest.raises(UsageError):
                train(model_config, longer, folder)
        assert contents(folder) == before
        # A reader needs no lock.
        train(model_config, training, folder)
    assert "nothing to do" in logged()


@pytest.mark.slow
def test_workers_share_the_folder(
    folder, model_config, training, monkeypatch, unfitted
):
    """One of them, the chief, has the lock."""
    monkeypatch.setattr(train_module, "is_chief", lambda *args: False)
    (folder / "model.keras").unlink()
    before = contents(folder)
    with folder_lock(folder, "trains"):
        train(model_config, training, folder)
    assert contents(folder) == before


@pytest.mark.slow
def test_a_prolonged_training_was_never_shorter(
    folder, tmp_path, model_config, training, monkeypatch, logged
):
    longer = training.replace(train_steps=7)
    straight = train(model_config, longer, tmp_path / "straight").model
    last = load_model(folder)

    def die(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TrainingRun, "run", die)
        with pytest.raises(KeyboardInterrupt):
            train(model_config, longer, folder)
    # It is not finished any more, and goes on.
    assert not (folder / "model.keras").exists()
    shutil.move(folder / "model-3.keras", tmp_path / "model.keras")
    assert_same_weights(load_model(tmp_path), last)
    logged()
    model = train(model_config, longer, folder).model
    assert "ckpt-3.npz (step 3)" in logged()
    assert_same_weights(model, straight)
    assert_same_weights(load_model(folder), straight)
    assert [row["step"] for row in read_metrics(folder)] == [2, 3, 4, 6, 7]
    train(model_config, longer, folder)
    assert "nothing to do" in logged()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "precision"),
    [
        ("muon", "float32"),
        ("muon", "mixed_bfloat16"),
        ("muon", "mixed_float16"),
        ("lion", "mixed_float16"),
    ],
)
def test_resumed_training_equals_an_uninterrupted_one(
    tmp_path, tiny_config, tiny_training, optimizer, precision
):
    training = tiny_training.replace(
        optimizer=optimizer, precision=precision, steps_per_checkpoint=1
    )
    half = training.replace(train_steps=training.run.train_steps // 2)
    expected = train(tiny_config, training, tmp_path / "whole").model
    train(tiny_config, half, tmp_path / "resumed")
    model = train(tiny_config, training, tmp_path / "resumed").model
    assert_same_weights(model, expected)
    assert all(map(np.all, map(np.isfinite, model.get_weights())))


def test_prolonged_from_between_two_executions(folder, model_config, training):
    longer = training.replace(
        train_steps=8,
        steps_per_checkpoint=2,
        steps_per_evaluation=2,
        steps_per_execution=2,
    )
    with pytest.raises(UsageError):
        train(model_config, longer, folder)


@pytest.mark.slow
@pytest.mark.parametrize("best", [True, False])
def test_starts_from_the_weights_of_another(
    folder, tmp_path, model_config, training, unfitted, logged, best
):
    expected = load_model(folder, best)
    if not best:
        (folder / "best.keras").unlink()
    starting = training.replace(init_from=str(folder), seed=5)
    # Fields that no weight depends on may change.
    config = model_config.replace(dropout=0.0, max_question_length=50)
    model_dir = tmp_path / "model"
    model = train(config, starting, model_dir).model
    assert_same_weights(model, expected)
    assert model.config == config
    printed = logged()
    assert f"the {'best' if best else 'last'} model of {folder}" in printed
    record = json.loads((model_dir / "config.json").read_text())
    assert record["training"]["run"]["init_from"] == str(folder)
    # Once it has begun, it needs the other no more.
    shutil.rmtree(folder)
    (model_dir / "model.keras").unlink()
    model = train(config, starting, model_dir).model
    assert_same_weights(model, expected)
    assert "Starting" not in logged()


def test_starts_from_no_other_architecture(
    finished, tmp_path, model_config, training
):
    starting = training.replace(init_from=str(finished))
    other = model_config.replace(num_layers=2, binding="none", dropout=0.2)
    with pytest.raises(UsageError) as caught:
        train(other, starting, tmp_path / "model")
    message = str(caught.value)
    for part in (
        str(finished),
        "(num_layers: 1 there, 2 here; binding: hadamard there, none here)",
    ):
        assert part in message
    assert not (tmp_path / "model").exists()


def test_starts_from_nothing(tmp_path, model_config, training):
    starting = training.replace(init_from=str(tmp_path / "no"))
    with pytest.raises(UsageError):
        train(model_config, starting, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_a_damaged_model_is_made_again(
    folder, finished, model_config, training, logged
):
    path = folder / "model.keras"
    damaged = path.read_bytes()[:-1000]
    path.write_bytes(damaged)
    model = train(model_config, training, folder).model
    printed = logged()
    assert str(path) in printed
    assert "ckpt-3.npz (step 3)" in printed
    assert_same_weights(model, load_model(finished))
    assert_same_weights(load_model(folder), model)
    # Nothing that may be good after all was lost.
    assert (folder / "model-damaged.keras").read_bytes() == damaged


def test_a_damaged_model_without_checkpoints(folder, model_config, training):
    """A training from its beginning is not what was asked for."""
    shutil.rmtree(folder / "checkpoints")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(folder / "model.keras")
    before = contents(folder)
    with pytest.raises(UsageError):
        train(model_config, training, folder)
    assert contents(folder) == before


def test_keeps_the_fingerprint_of_its_data(
    folder, model_config, training, logged
):
    path = folder / "config.json"
    record = json.loads(path.read_text())
    assert record["data"] == training_task(training).fingerprints
    record["data"][MODULE] = "of other problems"
    path.write_text(json.dumps(record))
    with pytest.raises(UsageError):
        train(model_config, training, folder)


@pytest.mark.slow
def test_goes_on_with_data_that_was_moved(
    folder,
    tmp_path,
    model_config,
    training,
    place_value_data,
    unfitted,
    logged,
):
    moved = tmp_path / "moved"
    shutil.copytree(place_value_data, moved)
    longer = training.replace(data_dir=str(moved), train_steps=4)
    train(model_config, longer, folder)
    assert "ckpt-3.npz (step 3)" in logged()
    record = json.loads((folder / "config.json").read_text())
    assert record["training"]["data"]["data_dir"] == str(moved)


@pytest.mark.slow
def test_in_a_folder_whose_name_looks_like_a_pattern(
    tmp_path, model_config, training, unfitted, logged
):
    folder = tmp_path / "run[1]*"
    model = train(model_config, training, folder).model
    (folder / "model.keras").unlink()
    again = train(model_config, training, folder).model
    path = folder / "checkpoints" / "ckpt-1.npz"
    assert f"Resuming from {path} (step 0)." in logged()
    assert_same_weights(again, model)

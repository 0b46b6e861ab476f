"""Keras's callbacks see one training, of the model that is trained."""

import keras
import numpy as np
import pytest

from tests.refusals import refused
from tests.training.trainings import assert_same_weights
from tests.training.trainings import newest_checkpoint
from tests.training.trainings import timeless_metrics
from tpt_keras.models.sequence_to_sequence import build_model
from tpt_keras.models.stored import load_model
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.state.model_folder import saved_step
from tpt_keras.training.train import train

pytestmark = [
    pytest.mark.jax,
    pytest.mark.torch,
    pytest.mark.slow_on_jax,
    pytest.mark.usefixtures("without_graphs"),
]


class Recorder(keras.callbacks.Callback):
    """Keeps what happens, and the model's weights after every step."""

    def __init__(self):
        super().__init__()
        self.events = []
        self.weights = []

    def on_train_begin(self, logs=None):
        self.events.append("begin")

    def on_train_batch_end(self, batch, logs=None):
        self.events.append(int(self.model.optimizer.iterations))
        self.weights.append(self.model.get_weights())

    def on_epoch_end(self, epoch, logs=None):
        self.events.append(f"epoch {epoch}")
        [answer] = self.model.solve(["What is the tens digit of 31859?"])
        assert isinstance(answer, str)

    def on_train_end(self, logs=None):
        self.events.append("end")


class Stop(keras.callbacks.Callback):
    """Stops a training at the first batch of its second interval."""

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self._epoch == 1:
            self.model.stop_training = True


@pytest.fixture(scope="module")
def training(tiny_training):
    """Intervals of two steps, the last of one."""
    return tiny_training.replace(train_steps=5)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, simple_config, training):
    """The folder of a training, its model and what a callback saw."""
    folder = tmp_path_factory.mktemp("recorded")
    recorder = Recorder()
    model = train(simple_config, training, folder, callbacks=[recorder])
    return folder, model, recorder


def test_a_training_begins_and_ends_once(recorded):
    _, model, recorder = recorded
    assert recorder.model is model
    assert recorder.events == [
        *("begin", 1, 2, "epoch 0", 3, 4, "epoch 1", 5, "epoch 2", "end")
    ]
    norms = [np.linalg.norm(weights[0]) for weights in recorder.weights]
    assert len(set(norms)) == 5
    assert_same_weights(recorder.weights[-1], model.get_weights())
    assert getattr(model, "optimizer", None) is None


@pytest.mark.slow
def test_best_weights_are_restored_at_the_end(
    tmp_path, simple_config, training, recorded, logged
):
    """And not where the shorter last interval begins."""
    folder, _, recorder = recorded
    callback = keras.callbacks.EarlyStopping(
        "loss", mode="max", patience=9, restore_best_weights=True
    )
    model = train(simple_config, training, tmp_path, callbacks=[callback])
    assert timeless_metrics(tmp_path) == timeless_metrics(folder)
    assert_same_weights(model.get_weights(), recorder.weights[1])
    assert saved_step(tmp_path, best=False) == 2
    assert saved_step(folder, best=False) == 5
    # A second line reads like a restart.
    assert logged().count("Training from step") == 1


@pytest.mark.slow
def test_model_checkpoints_can_be_loaded(
    tmp_path, simple_config, training, recorded
):
    whole, weights = tmp_path / "x.keras", tmp_path / "x.weights.h5"
    callbacks = [
        keras.callbacks.ModelCheckpoint(whole),
        keras.callbacks.ModelCheckpoint(weights, save_weights_only=True),
    ]
    train(simple_config, training, tmp_path / "model", callbacks=callbacks)
    expected = recorded[1].get_weights()
    assert_same_weights(load_model(whole).get_weights(), expected)
    model = build_model(simple_config)
    model.load_weights(weights)
    assert_same_weights(model.get_weights(), expected)


@pytest.mark.slow
def test_callbacks_of_keras(tmp_path, simple_config, training, capsys):
    callbacks = [
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.01 / 2**epoch),
        keras.callbacks.ReduceLROnPlateau("loss", mode="max", factor=0.1),
        keras.callbacks.TensorBoard(
            tmp_path / "events", histogram_freq=1, update_freq=1
        ),
        keras.callbacks.TerminateOnNaN(),
        keras.callbacks.ProgbarLogger(),
    ]
    train(simple_config, training, tmp_path / "model", callbacks=callbacks)
    rows = read_metrics(tmp_path / "model")
    rates = [row["learning_rate"] for row in rows]
    assert rates == pytest.approx([0.01, 0.005, 0.0025])
    header, *lines = (tmp_path / "log.csv").read_text().splitlines()
    assert "val_loss" in header.split(",")
    assert [line.split(",")[0] for line in lines] == ["0", "1", "2"]
    assert {path.name for path in (tmp_path / "events").iterdir()} == {
        "train",
        "validation",
    }
    assert "Epoch 3/3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("callback", "changes"),
    [
        (keras.callbacks.BackupAndRestore("backup"), {}),
        (keras.callbacks.ReduceLROnPlateau(), {"schedule": "linear"}),
        (
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.1),
            {"warmup_steps": 2},
        ),
    ],
)
def test_callbacks_without_effect_are_refused(
    tmp_path, simple_config, training, callback, changes
):
    training = training.replace(**changes)
    with refused("callbacks"):
        train(simple_config, training, tmp_path / "x", callbacks=[callback])
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 4])
def test_callback_stops_a_training(
    tmp_path, simple_config, training, logged, step
):
    """In the middle of an interval, and without a better evaluation."""
    callback = Stop()
    if step == 4:
        callback = keras.callbacks.EarlyStopping(
            "val_loss", min_delta=100.0, patience=1
        )
    arguments = (simple_config, training.replace(train_steps=10), tmp_path)
    weights = train(*arguments, callbacks=[callback]).get_weights()
    assert f"Stopped at step {step}." in logged()
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows] == [2, step]
    assert "val_loss" in rows[-1]
    for name in ("step", "optimizer/0"):
        assert newest_checkpoint(tmp_path)[name] == step
    # It is finished.
    assert_same_weights(train(*arguments).get_weights(), weights)
    if step == 3:
        # Its checkpoint tells that, too.
        (tmp_path / "model.keras").unlink()
        assert_same_weights(train(*arguments).get_weights(), weights)
        assert read_metrics(tmp_path) == rows

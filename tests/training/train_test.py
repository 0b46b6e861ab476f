import csv
import dataclasses
import gc
import json
import math
import pathlib
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import load_model
from tpt_keras.training import model_folder
from tpt_keras.training.train import train
from tpt_keras.training.train import training_batches


class KilledError(Exception):
    """What ends a training in the middle here."""


def read_history(model_dir):
    with (pathlib.Path(model_dir) / "history.csv").open() as file:
        return list(csv.DictReader(file))


def all_problems(batches, num_epochs=1):
    """Every question and answer of so many epochs, as token ids."""
    problems = []
    for inputs, targets in batches.iterate(num_epochs=num_epochs):
        for question, target in zip(inputs["encoder_token_ids"], targets):
            problems.append(
                (tuple(np.trim_zeros(question)), tuple(np.trim_zeros(target)))
            )
    return problems


def assert_same_weights(model, other):
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(ours),
            keras.ops.convert_to_numpy(theirs),
            err_msg=ours.path,
        )


def train_and_be_killed(monkeypatch, owner, name, replacement, *arguments):
    """Trains with one function replaced by one that ends it."""
    # A killed process closes its files; here that is left to the garbage
    # collector, which complains.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, replacement)
            with pytest.raises(KilledError):
                train(*arguments)
        gc.collect()


@pytest.fixture(scope="module")
def dropout_config(tiny_config):
    return tiny_config.replace(dropout=0.1)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, dropout_config, tiny_training):
    """The folder and the model of a training that nothing disturbed."""
    model_dir = tmp_path_factory.mktemp("uninterrupted") / "model"
    return model_dir, train(
        dropout_config, tiny_training, model_dir, preset="tp_transformer_tiny"
    )


def test_what_a_training_leaves(uninterrupted, dropout_config, tiny_training):
    model_dir, model = uninterrupted
    assert {path.name for path in model_dir.iterdir()} == {
        "checkpoints",
        "config.json",
        "history.csv",
        "learning_curves.png",
        "logs",
        "model.keras",
    }
    assert int(model.optimizer.iterations) == tiny_training.train_steps
    assert list((model_dir / "logs").rglob("events.out.tfevents*"))
    picture = (model_dir / "learning_curves.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert_same_weights(load_model(model_dir), model)
    checkpoints = tf.train.get_checkpoint_state(model_dir / "checkpoints")
    assert len(checkpoints.all_model_checkpoint_paths) == 2


def test_the_configuration_beside_the_model(
    uninterrupted, dropout_config, tiny_training
):
    config = json.loads((uninterrupted[0] / "config.json").read_text())
    assert config["preset"] == "tp_transformer_tiny"
    model_config = type(dropout_config)(**config["model"])
    assert model_config == dropout_config
    assert type(tiny_training)(**config["training"]) == tiny_training


def test_the_history(uninterrupted):
    rows = read_history(uninterrupted[0])
    assert [row["epoch"] for row in rows] == ["0", "1"]
    for row in rows:
        for prefix in ("", "val_"):
            assert 0.0 < float(row[f"{prefix}loss"]) < 10.0
            assert 0.0 <= float(row[f"{prefix}sequence_accuracy"]) <= 1.0
            assert 0.0 <= float(row[f"{prefix}token_accuracy"]) <= 1.0
    # An untrained model guesses; a few steps of this size help it at once.
    assert float(rows[1]["loss"]) < float(rows[0]["loss"])


def test_the_first_loss_is_that_of_the_first_batch(
    tmp_path, tiny_config, tiny_training
):
    """What is logged is what numpy makes of the batch and the weights."""
    training = dataclasses.replace(tiny_training, train_steps=1, seed=1)
    batches, validation = training_batches(tiny_config, training)
    keras.utils.set_random_seed(training.seed)
    model = Transformer(tiny_config)

    def loss(inputs, targets):
        logits = keras.ops.convert_to_numpy(model(inputs)).astype("float64")
        log_shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        of_target = np.take_along_axis(log_shares, targets[..., None], -1)
        return -of_target[..., 0][targets != 0]

    first = loss(*next(batches.iterate())).mean()
    model = train(tiny_config, training, tmp_path)
    assert int(model.optimizer.iterations) == 1
    [row] = read_history(tmp_path)
    assert float(row["loss"]) == pytest.approx(first, rel=1e-4)
    # And validation comes after the step, over the validation set alone.
    losses = [loss(*batch) for batch in validation.iterate(num_epochs=1)]
    assert len(losses) == math.ceil(20 / 16)
    means = [batch.mean() for batch in losses]
    assert min(means) < float(row["val_loss"]) < max(means)


def test_the_same_seed_gives_the_same_losses(
    tmp_path, uninterrupted, dropout_config, tiny_training
):
    model_dir, model = uninterrupted
    # The state of the process before a training must not matter.
    keras.utils.set_random_seed(99)
    again = train(dropout_config, tiny_training, tmp_path)
    assert read_history(tmp_path) == read_history(model_dir)
    assert_same_weights(again, model)


def test_a_finished_training_has_nothing_to_do(
    uninterrupted, dropout_config, tiny_training, monkeypatch, capsys
):
    model_dir, model = uninterrupted
    before = {path: path.stat() for path in model_dir.rglob("*")}

    def fit(*args, **kwargs):
        raise AssertionError("nothing was to be done")

    monkeypatch.setattr(keras.Model, "fit", fit)
    again = train(
        dropout_config, tiny_training, model_dir, preset="tp_transformer_tiny"
    )
    assert "nothing to do" in capsys.readouterr().out
    assert_same_weights(again, model)
    assert {path: path.stat() for path in model_dir.rglob("*")} == before


def test_another_training_in_the_same_folder_is_refused(
    uninterrupted, dropout_config, tiny_training
):
    model_dir, _ = uninterrupted
    training = dataclasses.replace(tiny_training, learning_rate=0.5)
    with pytest.raises(
        UsageError, match=r"training\.learning_rate: 0\.01 there, 0\.5 here"
    ):
        train(dropout_config, training, model_dir, preset="tp_transformer_tiny")


@pytest.mark.slow
def test_goes_on_whenever_it_was_killed(
    tmp_path, uninterrupted, dropout_config, tiny_training, monkeypatch
):
    model_dir, model = uninterrupted
    arguments = (
        dropout_config,
        tiny_training,
        tmp_path,
        "tp_transformer_tiny",
    )

    def checkpoint_count():
        state = tf.train.get_checkpoint_state(tmp_path / "checkpoints")
        return len(state.all_model_checkpoint_paths)

    def die(*args, **kwargs):
        raise KilledError

    # In the second interval, behind the first checkpoint.
    on_batch_end = keras.callbacks.TensorBoard.on_train_batch_end

    def die_in_the_third_step(self, batch, logs=None):
        on_batch_end(self, batch, logs)
        if int(self.model.optimizer.iterations) == 3:
            raise KilledError

    train_and_be_killed(
        monkeypatch,
        keras.callbacks.TensorBoard,
        "on_train_batch_end",
        die_in_the_third_step,
        *arguments,
    )
    assert checkpoint_count() == 1
    # After the second evaluation, before the second checkpoint.
    train_and_be_killed(
        monkeypatch, tf.train.CheckpointManager, "save", die, *arguments
    )
    assert checkpoint_count() == 1
    assert len(read_history(tmp_path)) == 2
    # After the second checkpoint, before the model is saved.
    train_and_be_killed(
        monkeypatch, model_folder, "save_finished_model", die, *arguments
    )
    assert checkpoint_count() == 2
    assert not (tmp_path / "model.keras").exists()
    assert_same_weights(train(*arguments), model)
    assert_same_weights(load_model(tmp_path), model)
    # The losses of the intervals that were started anew are the same, too.
    assert read_history(tmp_path) == read_history(model_dir)


def test_the_last_interval_may_be_shorter(tmp_path, tiny_config, tiny_training):
    training = dataclasses.replace(tiny_training, train_steps=3)
    model = train(tiny_config, training, tmp_path)
    assert int(model.optimizer.iterations) == 3
    assert [row["epoch"] for row in read_history(tmp_path)] == ["0", "1"]


def test_validation_problems_are_never_trained_on(tiny_config, tiny_training):
    training, validation = training_batches(tiny_config, tiny_training)
    seen = all_problems(training, num_epochs=2)
    unseen = all_problems(validation)
    assert len(validation) == len(unseen) == len(set(unseen)) == 20
    assert len(training) == 580
    assert len(seen) == 2 * 580
    assert len(set(seen)) == 580
    assert not set(seen) & set(unseen)


def test_validation_problems_are_of_every_difficulty(
    tiny_config, tiny_training
):
    training = dataclasses.replace(tiny_training, validation_examples=100)
    _, validation = training_batches(tiny_config, training)
    lengths = [len(question) for question, _ in all_problems(validation)]
    everything = [
        len(question)
        for batches in training_batches(tiny_config, training)
        for question, _ in all_problems(batches)
    ]
    # The first hundred of the files would be the short ones.
    assert np.mean(lengths) == pytest.approx(np.mean(everything), abs=1.0)
    assert np.std(everything) > 1.0


def test_the_validation_set_is_the_seeds(tiny_config, tiny_training):
    sets = []
    for seed in (0, 0, 1):
        training = dataclasses.replace(tiny_training, seed=seed)
        sets.append(
            set(all_problems(training_batches(tiny_config, training)[1]))
        )
    assert sets[0] == sets[1]
    assert sets[0] != sets[2]


@pytest.mark.parametrize("apart", [600, 1000])
def test_too_few_problems(tiny_config, tiny_training, apart):
    training = dataclasses.replace(tiny_training, validation_examples=apart)
    with pytest.raises(UsageError, match=f"600.*{apart}"):
        training_batches(tiny_config, training)


def test_a_missing_data_folder_leaves_no_model_folder(
    tmp_path, tiny_config, tiny_training
):
    training = dataclasses.replace(
        tiny_training, data_dir=str(tmp_path / "nothing")
    )
    with pytest.raises(UsageError, match="no data folder"):
        train(tiny_config, training, tmp_path / "model")
    assert not (tmp_path / "model").exists()

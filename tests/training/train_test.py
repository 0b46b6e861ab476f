import gc
import json
import warnings

import keras
import numpy as np
import pytest

from tests.conftest import MODULE
from tests.refusals import refused
from tests.training.trainings import KilledError
from tests.training.trainings import assert_same_weights
from tests.training.trainings import checkpoints_of
from tests.training.trainings import newest_checkpoint
from tests.training.trainings import timeless_metrics
from tests.training.trainings import train_in_two
from tpt_keras.data_generators import training_task
from tpt_keras.errors import UsageError
from tpt_keras.models.configs import from_stored
from tpt_keras.models.stored import load_model
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.intervals import Intervals
from tpt_keras.training.intervals import NonFiniteLossError
from tpt_keras.training.optimizers import WarmupAndDecay
from tpt_keras.training.questions import QuestionLearner
from tpt_keras.training.schedules import SCHEDULES
from tpt_keras.training.state import model_folder
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.state.model_folder import TrainingState
from tpt_keras.training.train import make_trainer
from tpt_keras.training.train import train

PRESET = "tp_transformer_tiny"

pytestmark = pytest.mark.usefixtures("without_graphs")


@pytest.fixture(scope="module")
def training(tiny_training):
    return tiny_training.replace(evaluation_examples=20)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, model_config, training):
    """The folder of a training that nothing disturbed, and its model."""
    model_dir = tmp_path_factory.mktemp("uninterrupted") / "model"
    # The state of the process before a training must not matter.
    keras.utils.set_random_seed(90)
    model = train(model_config, training, model_dir, PRESET)
    return model_dir, model


def test_what_a_training_leaves(uninterrupted, model_config, training):
    model_dir, model = uninterrupted
    assert {path.name for path in model_dir.iterdir()} == {
        ".lock",
        "best.keras",
        "checkpoints",
        "config.json",
        "logs",
        "metrics.jsonl",
        "model.keras",
    }
    assert getattr(model, "optimizer", None) is None
    assert {path.name for path in (model_dir / "logs").iterdir()} == {
        "extrapolate",
        "interpolate",
        "train",
        "validation",
    }
    assert_same_weights(load_model(model_dir), model)
    # One after every interval.
    assert len(checkpoints_of(model_dir)) == 2
    assert newest_checkpoint(model_dir)["step"] == training.run.train_steps
    config = json.loads((model_dir / "config.json").read_text())
    assert config["preset"] == PRESET
    assert from_stored(config["model"]) == model_config
    assert TrainingConfig.from_stored(config["training"]) == training
    assert config["data"] == training_task(training).fingerprints


def test_rows_have_all_metrics(uninterrupted, training):
    rows = read_metrics(uninterrupted[0])
    assert [row["step"] for row in rows] == [2, 4]
    splits = ("interpolate", "extrapolate")
    for row in rows:
        assert row.keys() == {
            "step",
            *(
                f"{prefix}{name}"
                for prefix in ("", "val_")
                for name in ("loss", "sequence_accuracy", "token_accuracy")
            ),
            "gradient_norm",
            "learning_rate",
            "examples_per_second",
            "tokens_per_second",
            "minutes",
            *(f"{split}_sequence_accuracy" for split in splits),
            *(f"{split}/{MODULE}" for split in splits),
        }
        for name, value in row.items():
            if name.endswith("loss"):
                assert 0.0 < value < 10.0
            if "accuracy" in name:
                assert 0.0 <= value <= 1.0
        for split in splits:  # the mean over one module
            assert row[f"{split}_sequence_accuracy"] == pytest.approx(
                row[f"{split}/{MODULE}"]
            )
        assert 0.0 < row["gradient_norm"] < 100.0
        assert row["learning_rate"] == pytest.approx(
            training.optimizer.learning_rate
        )
        # A problem has some 45 tokens here.
        ratio = row["tokens_per_second"] / row["examples_per_second"]
        assert 35.0 < ratio < 55.0
    assert 0.0 < rows[0]["minutes"] < rows[1]["minutes"]
    # An untrained model guesses; a few steps of this size help it at once.
    assert rows[1]["loss"] < rows[0]["loss"]


@pytest.mark.parametrize(
    ("changes", "validated_by"),
    [
        ({"learning_rate": 0.5}, "questions"),
        ({"train_steps": 8}, "questions"),
        # What a training of version 0.13.0 has.
        ({}, None),
    ],
)
def test_another_training_in_the_same_folder_is_refused(
    uninterrupted, model_config, training, monkeypatch, changes, validated_by
):
    monkeypatch.setattr(QuestionLearner, "validated_by", validated_by)
    with refused("model_dir"):
        train(
            model_config, training.replace(**changes), uninterrupted[0], PRESET
        )


@pytest.mark.slow
def test_training_resumes_wherever_it_was_killed(
    tmp_path, uninterrupted, model_config, training, monkeypatch
):
    model_dir, model = uninterrupted
    arguments = (model_config, training, tmp_path, PRESET)

    def kill(owner, name, replacement):
        # A killed process closes its files; here that is left to the garbage
        # collector, which complains.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, replacement)
                with pytest.raises(KilledError):
                    train(*arguments)
            gc.collect()

    def die(*args, **kwargs):
        raise KilledError

    def die_in_the_third_step(self, batch, logs=None):
        self._steps = batch + 1
        if int(self.model.optimizer.iterations) == 3:
            raise KilledError

    # In the second interval, behind the first checkpoint.
    kill(Intervals, "on_train_batch_end", die_in_the_third_step)
    assert len(checkpoints_of(tmp_path)) == 1
    assert len(read_metrics(tmp_path)) == 1
    # After the second evaluation, before the second checkpoint.
    kill(TrainingState, "save", die)
    assert len(checkpoints_of(tmp_path)) == 1
    assert len(read_metrics(tmp_path)) == 2
    # After the second checkpoint, before the model is saved.
    save = model_folder.save_model
    kill(
        model_folder,
        "save_model",
        lambda *args, best=False: save(*args, best=True) if best else die(),
    )
    assert len(checkpoints_of(tmp_path)) == 2
    assert not (tmp_path / "model.keras").exists()
    assert_same_weights(train(*arguments), model)
    assert_same_weights(load_model(tmp_path), model)
    # The losses of the intervals that were started anew are the same, too.
    assert timeless_metrics(tmp_path) == timeless_metrics(model_dir)
    assert_same_weights(
        load_model(tmp_path, best=True), load_model(model_dir, best=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_muon_resumes_as_an_uninterrupted_training(
    tmp_path, tiny_config, tiny_training, monkeypatch, precision
):
    training = tiny_training.replace(
        optimizer="muon",
        precision=precision,
        train_steps=2,
        steps_per_checkpoint=1,
    )
    expected = train(tiny_config, training, tmp_path / "whole")
    model = train_in_two(
        monkeypatch, train, tiny_config, training, tmp_path / "resumed"
    )
    assert_same_weights(model, expected)
    assert model.dtype_policy.name == precision
    assert all(map(np.all, map(np.isfinite, model.get_weights())))


@pytest.mark.slow
def test_steps_that_do_not_divide(tmp_path, tiny_config, tiny_training):
    training = tiny_training.replace(
        train_steps=7,
        steps_per_checkpoint=2,
        steps_per_evaluation=4,
        schedule="cosine",
        warmup_steps=2,
        keep_checkpoints=2,
    )
    train(tiny_config, training, tmp_path)
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows] == [2, 4, 6, 7]
    # An evaluation comes with the last step in any case.
    assert [row["step"] for row in rows if "val_loss" in row] == [4, 7]
    assert newest_checkpoint(tmp_path)["step"] == 7
    assert len(checkpoints_of(tmp_path)) == 2
    rate = WarmupAndDecay(1e-2, "cosine", 2, 7)
    for row in rows:
        assert row["learning_rate"] == pytest.approx(
            float(rate(row["step"])), abs=1e-9
        )
        # No examples, no evaluation of the splits.
        assert not any("polate" in name for name in row)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("train_steps", [1, 2])
def test_a_warm_up_may_take_all_steps(schedule, train_steps):
    rate = WarmupAndDecay(1.0, schedule, 2, train_steps)
    assert [float(rate(step)) for step in range(3)] == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("steps_per_checkpoint", [1, 2])
def test_loss_that_is_not_finite_ends_a_training(
    tmp_path, tiny_config, tiny_training, steps_per_checkpoint
):
    """With one step, the weights alone show it."""
    training = tiny_training.replace(
        learning_rate=1e38,
        train_steps=2 * steps_per_checkpoint,
        steps_per_checkpoint=steps_per_checkpoint,
    )
    assert issubclass(NonFiniteLossError, UsageError)
    with refused("learning_rate", error=NonFiniteLossError):
        train(tiny_config, training, tmp_path)
    assert checkpoints_of(tmp_path) == []
    assert read_metrics(tmp_path) == []
    assert not (tmp_path / "model.keras").exists()


def test_every_option_reaches_the_trainer(tiny_config, tiny_training):
    training = tiny_training.replace(
        global_clipnorm=0.375,
        precision="mixed_bfloat16",
        gradient_accumulation_steps=4,
    )
    trainer = make_trainer(tiny_config, training)
    assert trainer.global_clipnorm == 0.375
    assert trainer.gradient_accumulation_steps == 4
    assert trainer.model.dtype_policy.name == "mixed_bfloat16"

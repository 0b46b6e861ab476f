"""What the tuner makes of trials, with a function in place of trainings."""

import json

import pytest
import tensorflow as tf

from tests.tuning.searching import TINY_SPACE
from tests.tuning.searching import open_oracle
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.finite_loss import NonFiniteLossError
from tpt_keras.training.training_result import TrainingResult
from tpt_keras.tuning import training_tuner
from tpt_keras.tuning.training_tuner import TrainingTuner

TRAINING = TrainingConfig.from_flat(
    modules=["m"], train_steps=40, steps_per_evaluation=10, seed=5
)


def row(step, score):
    return {"step": step, "val_sequence_accuracy": score}


@pytest.fixture
def search(tmp_path, monkeypatch):
    """Runs a search; every training is a call of a function.

    The function gets the training's `TrainingConfig` and folder, and returns
    the rows of its history.
    """

    def search(fake, kind="random", max_trials=3, **kwargs):
        def train(model_config, config, model_dir, **kwargs):
            return TrainingResult(None, fake(config, model_dir))

        monkeypatch.setattr(training_tuner, "train", train)
        oracle = open_oracle(kind, tmp_path, max_trials)
        TrainingTuner(oracle, TINY_SPACE, TRAINING, tmp_path, **kwargs).search()
        return list(oracle.trials.values())

    return search


def test_a_score_is_the_mean_of_the_best(search, tmp_path):
    seeds = []

    def train(config, model_dir):
        seeds.append(config.run.seed)
        assert model_dir.parent.parent == tmp_path
        best = 0.2 if config.run.seed == 5 else 0.4
        return [row(10, 0.1), row(20, best), row(30, float("nan"))]

    [trial, _, _] = search(train, executions_per_trial=2)
    assert trial.score == pytest.approx(0.3)
    assert seeds == [5, 6] * 3


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NonFiniteLossError("The loss\nof step 3.", 3), "The loss of step 3."),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), "OOM"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_trial_that_fails_is_recorded(search, tmp_path, error, reason):
    def train(config, model_dir):
        if model_dir.parent.name == "trial_1":
            raise error
        return [row(10, 0.5)]

    trials = search(train)
    statuses = [trial.status for trial in trials]
    assert statuses == ["COMPLETED", "FAILED", "COMPLETED"]
    assert trials[1].message == reason
    assert (tmp_path / "trial_1/failure.txt").read_text() == f"{reason}\n"


def test_an_objective_that_is_never_finite_is_a_failure(search):
    trials = search(lambda *_: [row(10, float("nan"))], max_trials=1)
    assert trials[0].status == "FAILED"
    assert "never finite" in trials[0].message


def test_a_defect_ends_the_search_and_its_trial_comes_back(search):
    def broken(config, model_dir):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search(broken)
    folders = []

    def train(config, model_dir):
        folders.append(model_dir.parent.name)
        return [row(10, 0.5)]

    assert len(search(train)) == 3
    assert folders == ["trial_0", "trial_1", "trial_2"]


def test_hyperbands_epochs_are_steps(search):
    """From evaluation to evaluation; the best go on to the whole budget."""
    steps = {}

    def train(config, model_dir):
        steps[model_dir.parent.name] = config.run.train_steps
        return [row(config.run.train_steps, config.optimizer.learning_rate)]

    for trial in search(train, "hyperband"):
        epochs = trial.hyperparameters.values["tuner/epochs"]
        assert steps[f"trial_{trial.trial_id}"] == 10 * epochs
    assert set(steps.values()) == {20, 40}


def test_hyperband_prolongs_a_constant_schedule_alone(search):
    """A cosine ends with its last step: it is trained from its start."""
    begun = {}

    def train(config, model_dir):
        log = model_dir / "metrics.jsonl"
        if (model_dir / "earlier").exists():
            begun[model_dir.parent.name] = (model_dir / "earlier").read_text()
        (model_dir / "earlier").write_text(model_dir.parent.name)
        log.write_text("{}")
        return [row(config.run.train_steps, config.optimizer.learning_rate)]

    continued = 0
    for trial in search(train, "hyperband"):
        values = trial.hyperparameters.values
        expected = None
        if values["schedule"] == "constant" and "tuner/trial_id" in values:
            expected = f"trial_{values['tuner/trial_id']}"
            continued += 1
        assert begun.get(f"trial_{trial.trial_id}") == expected
    assert continued


def test_tensorboard_shows_the_hyperparameters(search, tmp_path):
    search(lambda *_: [row(10, 0.5)], max_trials=1)
    [path] = (tmp_path / "trial_0/execution0/logs").glob("events.out.*")
    written = b"".join(
        record.numpy() for record in tf.data.TFRecordDataset(str(path))
    )
    for name in ("adam_learning_rate", "variant", "session_start_info"):
        assert name.encode() in written


def test_all_state_is_whole(search, tmp_path):
    search(lambda *_: [row(10, 0.5)])
    for path in tmp_path.rglob("*.json"):
        json.loads(path.read_text())
    assert not list(tmp_path.rglob("partial-*"))

"""Searches with a function in place of the trainings."""

import json
import types

import keras_tuner
import numpy as np
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.training.callbacks import NonFiniteLossError
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.trainer import Trainer
from tpt_keras.tuning import tune as tune_module
from tpt_keras.tuning.tune import TUNERS
from tpt_keras.tuning.tune import TransformerHyperModel
from tpt_keras.tuning.tune import tune

TRAINING = TrainingConfig.from_flat(
    modules=["m"], train_steps=40, steps_per_evaluation=10, seed=5
)


class KilledError(BaseException):
    """Stands for the end of the process."""


def row(step, score):
    return {"step": step, "val_sequence_accuracy": score}


def learned(config, model_dir):
    """The history of a training, a function of its configuration."""
    return [row(config.run.train_steps, 100 * config.optimizer.learning_rate)]


@pytest.fixture
def search(tmp_path, monkeypatch, tiny_space):
    """Runs a search whose trainings are calls of a function."""
    task = types.SimpleNamespace(fingerprints={})
    monkeypatch.setattr(tune_module, "training_task", lambda _: task)
    monkeypatch.setattr(tune_module, "write_report", lambda folder: folder)

    def search(fake, tuner="random", max_trials=3, folder="search", **kwargs):
        def train(model_config, config, model_dir, **kwargs):
            model_dir.mkdir(parents=True, exist_ok=True)
            return types.SimpleNamespace(history=fake(config, model_dir))

        monkeypatch.setattr(tune_module, "train", train)
        folder = tune(
            tiny_space,
            TRAINING,
            tmp_path / folder,
            tuner,
            max_trials=max_trials,
            **kwargs,
        )
        return trials_of(folder)

    return search


def trials_of(folder):
    """The records of all trials by their numbers."""
    records = [
        json.loads(path.read_text())
        for path in folder.glob("trials/*/trial.json")
    ]
    return {int(record["trial"]): record for record in records}


def test_score_is_the_best_value_of_each_execution(search):
    seeds = []

    def train(config, model_dir):
        seeds.append(config.run.seed)
        return [
            row(10, 0.1),
            row(20, config.run.seed / 10),
            row(30, float("nan")),
        ]

    trials = search(train, executions_per_trial=2)
    assert seeds == [5, 6] * 3
    assert trials[0]["scores"] == [0.5, 0.6]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NonFiniteLossError("The loss\nof step 3.", 3), "The loss of step 3."),
        (MemoryError(), "MemoryError"),
        (RuntimeError("RESOURCE_EXHAUSTED: no"), "RESOURCE_EXHAUSTED: no"),
    ],
)
def test_failed_trial_is_recorded_and_not_repeated(search, error, reason):
    trained = []

    def train(config, model_dir):
        trained.append(model_dir)
        if len(trained) == 2:
            raise error
        return learned(config, model_dir)

    trials = search(train)
    assert search(train) == trials
    assert len(trained) == 3
    statuses = [trials[number]["status"] for number in range(3)]
    assert statuses == ["completed", "failed", "completed"]
    assert trials[1]["reason"] == reason


def test_objective_that_is_never_finite_fails(search):
    trials = search(lambda *_: [row(10, float("nan"))], max_trials=1)
    assert trials[0]["status"] == "failed"


def test_other_errors_end_the_search(search):
    def broken(config, model_dir):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search(broken)
    assert len(search(learned)) == 3


@pytest.mark.parametrize("kind", TUNERS)
def test_killed_search_resumes_with_the_same_trials(search, kind):
    expected = search(learned, kind, max_trials=6, folder="whole")
    assert len(expected) >= 6
    begun = set()

    def killed_once(config, model_dir):
        if model_dir not in begun:
            begun.add(model_dir)
            raise KilledError
        return learned(config, model_dir)

    for _ in expected:
        with pytest.raises(KilledError):
            search(killed_once, kind, max_trials=6)
    assert search(killed_once, kind, max_trials=6) == expected


def test_more_trials_follow_those_of_a_finished_search(search):
    first = search(learned)
    more = search(learned, max_trials=5)
    assert len(more) == 5
    assert {number: more[number] for number in first} == first


def test_epochs_of_hyperband_are_evaluations(search):
    steps = set()

    def train(config, model_dir):
        steps.add(config.run.train_steps)
        return learned(config, model_dir)

    trials = search(train, "hyperband").values()
    assert {
        10 * trial["hyperparameters"]["epochs"] for trial in trials
    } == steps
    assert steps == {20, 40}


@pytest.mark.parametrize(
    ("best", "expected"), [("constant", {"constant"}), ("cosine", set())]
)
def test_hyperband_prolongs_constant_schedules_alone(search, best, expected):
    """A cosine ends with its last step and is trained from its start."""
    prolonged = set()

    def train(config, model_dir):
        if (model_dir / "earlier").exists():
            prolonged.add(config.optimizer.schedule)
        (model_dir / "earlier").write_text("")
        return [row(10, float(config.optimizer.schedule == best))]

    search(train, "hyperband")
    assert prolonged == expected


def test_hparams_are_written_for_tensorboard(search, tmp_path):
    search(learned, max_trials=1)
    [path] = (tmp_path / "search").glob("trials/*/execution0/logs/events.out.*")
    written = path.read_bytes()
    for name in ("adam_learning_rate", "variant", "session_start_info"):
        assert name.encode() in written


def test_another_search_is_refused(search, tmp_path):
    search(learned, max_trials=1)
    with pytest.raises(UsageError) as caught:
        search(learned, executions_per_trial=2)
    assert caught.value.path == str(tmp_path / "search")
    assert "executions_per_trial" in str(caught.value)


@pytest.mark.slow
def test_hyperband_of_keras_tuner_searches_the_hypermodel(
    tmp_path, without_graphs, tiny_space
):
    ids = np.array([[1, 15, 9, 15, 2]] * 4)
    x = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    tuner = keras_tuner.Hyperband(
        TransformerHyperModel(tiny_space, TRAINING),
        keras_tuner.Objective("val_loss", "min"),
        max_epochs=2,
        factor=2,
        seed=1,
        directory=tmp_path,
    )
    names = {hp.name for hp in tuner.oracle.get_space().space}
    assert {"warmup_share", "adam_learning_rate"} < names
    tuner.search(x, ids, validation_data=(x, ids), verbose=0)
    trials = tuner.oracle.trials.values()
    assert {trial.status for trial in trials} == {"COMPLETED"}
    [best] = tuner.get_best_models(1)
    assert isinstance(best, Trainer)
    loss = best.evaluate(x, ids, return_dict=True, verbose=0)["loss"]
    assert loss == pytest.approx(tuner.oracle.get_best_trials(1)[0].score)

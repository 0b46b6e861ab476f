"""Searches with a function in place of the trainings."""

import json
import sys
import types

import pytest
from keras_tuner.engine.trial import Trial

from tests.refusals import refused
from tpt_keras.errors import MissingDependencyError
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.intervals import NonFiniteLossError
from tpt_keras.tuning import oracles
from tpt_keras.tuning import tune as tune_module
from tpt_keras.tuning.search_space import SearchSpace
from tpt_keras.tuning.tune import TUNERS
from tpt_keras.tuning.tune import tune

TRAINING = TrainingConfig.from_flat(
    modules=["m"], train_steps=40, steps_per_evaluation=10, seed=5
)


@pytest.fixture(scope="module")
def space():
    return SearchSpace(
        variants=("transformer", "tp_transformer"),
        num_layers=(1,),
        num_heads=(1, 2),
        schedules=("constant", "cosine"),
        min_weights=3000,
        max_weights=4000,
    )


def row(step, score):
    return {"step": step, "val_sequence_accuracy": score}


def learned(config):
    """The history of a training, a function of its configuration."""
    return [row(config.run.train_steps, 100 * config.optimizer.learning_rate)]


@pytest.fixture
def search(tmp_path, monkeypatch, space):
    """Runs a search whose trainings are calls of a function.

    Like `train`, it does nothing in the folder of a finished training.
    """
    task = types.SimpleNamespace(fingerprints={}, adapted=lambda config: config)
    monkeypatch.setattr(tune_module, "training_task", lambda _: task)
    monkeypatch.setattr(tune_module, "write_report", lambda *_: None)

    def search(fake, tuner="random", max_trials=3, folder="search", **kwargs):
        def train(model_config, config, model_dir, **kwargs):
            path = model_dir / "metrics.jsonl"
            if not path.exists():
                model_dir.mkdir(parents=True, exist_ok=True)
                rows = map(json.dumps, fake(config))
                path.write_text("\n".join(rows))
                (model_dir / "model.keras").touch()

        monkeypatch.setattr(tune_module, "train", train)
        return tune(
            space,
            TRAINING,
            tmp_path / folder,
            tuner,
            max_trials=max_trials,
            **kwargs,
        )

    return search


def test_score_is_the_mean_of_the_best_values_of_the_executions(search):
    seeds = []

    def train(config):
        seeds.append(config.run.seed)
        return [
            row(10, 0.1),
            row(20, config.run.seed / 10),
            row(30, float("nan")),
        ]

    trials = search(train, executions_per_trial=2)
    assert seeds == [5, 6] * 3
    assert trials[0]["scores"] == [0.5, 0.6]
    assert trials[0]["score"] == pytest.approx(0.55)
    assert trials[0]["best_step"] == 20
    assert trials[0]["weights"] == 3980


class OutOfMemoryError(RuntimeError):
    """Has the name of PyTorch's."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NonFiniteLossError("The loss\nof step 3.", 3), "The loss of step 3."),
        (MemoryError(), "MemoryError"),
        (RuntimeError("RESOURCE_EXHAUSTED: no"), "RESOURCE_EXHAUSTED: no"),
        (RuntimeError("can't allocate memory"), "can't allocate memory"),
        (OutOfMemoryError("CUDA"), "CUDA"),
    ],
)
def test_failed_trial_is_noted_and_not_repeated(search, capfd, error, reason):
    trained = []

    def train(config):
        trained.append(config)
        if len(trained) == 2:
            raise error
        return learned(config)

    trials = search(train)
    assert search(train) == trials
    assert len(trained) == 3
    statuses = [trial["status"] for trial in trials]
    assert statuses == ["completed", "failed", "completed"]
    assert trials[1]["reason"] == reason
    assert capfd.readouterr().err == ""


def test_objective_that_is_never_finite_fails(search):
    [trial] = search(lambda _: [row(10, float("nan"))], max_trials=1)
    assert trial["status"] == "failed"


def test_other_errors_end_the_search(search):
    def broken(config):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search(broken)
    assert len(search(learned)) == 3


@pytest.mark.parametrize("kind", TUNERS)
def test_killed_search_resumes_with_the_same_trials(search, kind):
    expected = search(learned, kind, max_trials=6, folder="whole")
    assert len({trial["folder"] for trial in expected}) == 6
    # More trials follow those of a smaller search.
    assert expected[:5] == search(learned, kind, max_trials=5, folder="small")
    trained = []

    def killed_once(config):
        trained.append(config)
        if len(trained) == 6:
            raise KeyboardInterrupt
        return learned(config)

    with pytest.raises(KeyboardInterrupt):
        search(killed_once, kind, max_trials=6)
    assert search(killed_once, kind, max_trials=6) == expected
    assert len(trained) == 7


def test_bayesian_search_needs_scikit_learn(search, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(MissingDependencyError):
        search(learned, tuner="bayesian")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("worker", [False, True])
def test_another_search_is_refused(search, monkeypatch, tmp_path, worker):
    search(learned, max_trials=1)
    if worker:
        for name in oracles.VARIABLES:
            monkeypatch.setenv(name, "1")
        client = tune_module.oracle_client.OracleClient
        monkeypatch.setattr(client, "get_space", lambda _: None)
    with refused(path=tmp_path / "search", part="executions_per_trial"):
        search(learned, executions_per_trial=2)


@pytest.mark.parametrize("name", oracles.VARIABLES)
def test_half_set_variables_are_refused(search, monkeypatch, name):
    for each in oracles.VARIABLES:
        monkeypatch.setenv(each, "1")
    monkeypatch.setenv(name, "")
    with refused(field=name):
        search(learned)
    monkeypatch.delenv(name)
    with refused(field=name):
        search(learned)


@pytest.mark.parametrize("kind", TUNERS)
def test_trials_of_killed_workers_and_of_an_earlier_chief(
    space, tmp_path, kind
):
    oracle = oracles.make_oracle(space, TRAINING, kind, "val_loss", 2)
    oracle._set_project_dir(tmp_path, kind)
    oracle.verbose = 0
    first, second = map(oracle.create_trial, ("killed", "a"))
    assert oracle.create_trial("b").trial_id == first.trial_id
    unknown = Trial(first.hyperparameters, "7", "COMPLETED")
    for trial in (unknown, first, first, second):
        oracle.update_trial(trial.trial_id, {"val_loss": 1.0})
        oracle.end_trial(
            Trial(trial.hyperparameters, trial.trial_id, "COMPLETED")
        )
    assert list(oracle.trials) == [first.trial_id, second.trial_id]
    assert not oracle.ongoing_trials
    assert oracle.create_trial("a").status == "STOPPED"

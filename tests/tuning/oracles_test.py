"""A search that is killed anywhere proposes what it would have without."""

import json

import pytest
from keras_tuner.engine import trial as trials

from tests.tuning.searching import open_oracle

KINDS = ("random", "bayesian", "hyperband", "grid")
COMPLETED = trials.TrialStatus.COMPLETED


def score(trial):
    """What stands for a training: any function of the hyperparameters."""
    values = trial.hyperparameters.values
    return values["adam_learning_rate"] * 100 + values["num_heads"] * 0.1


def end(oracle, trial):
    oracle.update_trial(trial.trial_id, {"val_sequence_accuracy": score(trial)})
    trial.status = COMPLETED
    oracle.end_trial(trial)


def search(kind, folder, kill=None):
    """Every trial's values, of a search that may be killed all the time.

    `kill` is where: `"running"`, after a trial began, or `"unwritten"`, after
    that was written into the trial's file and not into the oracle's.
    """
    oracle = open_oracle(kind, folder)
    while True:
        path = folder / "oracle.json"
        before = path.read_bytes() if path.exists() else None
        trial = oracle.create_trial("tuner0")
        if trial.status == trials.TrialStatus.STOPPED:
            return {
                trial_id: trial.hyperparameters.values
                for trial_id, trial in oracle.trials.items()
            }
        if kill:
            if kill == "unwritten" and before:
                path.write_bytes(before)
            oracle = open_oracle(kind, folder)
            again = oracle.create_trial("tuner0")
            assert again.trial_id == trial.trial_id
            trial = again
        end(oracle, trial)
        oracle.save()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kill", ["running", "unwritten"])
def test_a_killed_search_proposes_the_same(tmp_path, kind, kill):
    expected = search(kind, tmp_path / "whole")
    assert len(expected) >= 6
    assert search(kind, tmp_path / "killed", kill) == expected


def test_a_trial_that_had_ended_is_not_repeated(tmp_path):
    """Killed between the oracle's last word and the tuner's."""
    oracle = open_oracle("random", tmp_path)
    trial = oracle.create_trial("tuner0")
    end(oracle, trial)  # which the tuner would save once more
    state = json.loads((tmp_path / "oracle.json").read_text())
    assert state["ongoing_trials"] == {"tuner0": trial.trial_id}
    following = open_oracle("random", tmp_path).create_trial("tuner0")
    assert following.trial_id != trial.trial_id


def test_failures_do_not_end_a_search(tmp_path):
    oracle = open_oracle("random", tmp_path)
    for _ in range(6):
        trial = oracle.create_trial("tuner0")
        trial.status = trials.TrialStatus.FAILED
        oracle.end_trial(trial)
    stopped = oracle.create_trial("tuner0")
    assert stopped.status == trials.TrialStatus.STOPPED


def test_a_damaged_write_leaves_the_state_before(tmp_path, monkeypatch):
    oracle = open_oracle("random", tmp_path)
    end(oracle, oracle.create_trial("tuner0"))
    before = (tmp_path / "oracle.json").read_text()
    monkeypatch.setattr(oracle, "get_state", lambda: {"broken": object()})
    with pytest.raises(TypeError):
        oracle.save()
    assert (tmp_path / "oracle.json").read_text() == before

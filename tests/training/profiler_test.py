import pytest

from tpt_keras.training import callbacks as profiler
from tpt_keras.training.callbacks import Profiler


@pytest.fixture
def profiles(monkeypatch):
    """Starts and stops of the profiler, with the steps done by then."""
    events = []
    monkeypatch.setattr(
        profiler, "start_profile", lambda _: events.append("start")
    )
    monkeypatch.setattr(profiler, "stop_profile", lambda: events.append("stop"))
    return events


def run_epochs(profiles, epochs, *arguments):
    """Epochs of six steps as `fit` calls its callbacks.

    Returns:
        The steps that were made within a profile.
    """
    epoch = 0
    steps_per_execution = arguments[-1]
    profiler = Profiler(*arguments[:-1], lambda: 6 * epoch, steps_per_execution)
    profiled = []
    for epoch in epochs:
        profiler.on_epoch_begin(epoch)
        for batch in range(0, 6, steps_per_execution):
            profiler.on_train_batch_begin(batch)
            if profiles and profiles[-1] == "start":
                first = epoch * 6 + batch + 1
                profiled += range(first, first + steps_per_execution)
            profiler.on_train_batch_end(batch + steps_per_execution - 1)
    profiler.on_train_end()
    return profiled


@pytest.mark.parametrize(
    ("first", "last", "steps_per_execution", "expected"),
    [
        (2, 3, 1, [2, 3]),
        (6, 7, 1, [6, 7]),
        (9, 9, 1, [9]),
        # Steps that are made at once are profiled together.
        (2, 2, 2, [1, 2]),
        (6, 7, 3, [4, 5, 6, 7, 8, 9]),
        # The training ends before the profile does.
        (12, 20, 1, [12]),
        (13, 20, 1, []),
    ],
)
def test_profiles_the_steps(
    tmp_path, profiles, first, last, steps_per_execution, expected
):
    profiled = run_epochs(
        profiles, (0, 1), tmp_path, first, last, steps_per_execution
    )
    assert profiled == expected
    assert profiles == (["start", "stop"] if expected else [])


def test_a_training_that_goes_on_behind_the_profile(tmp_path, profiles):
    assert run_epochs(profiles, (1,), tmp_path, 2, 3, 1) == []
    assert profiles == []

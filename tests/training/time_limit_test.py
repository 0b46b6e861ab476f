"""Trainings that end with their time, by a clock of the test's."""

import keras
import pytest

from tpt_keras.models.stored import load_model
from tpt_keras.training import intervals
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.train import train

SECONDS_PER_STEP = 10


class Clock:
    """Stands still but for the steps of a training."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def ticking(self, stop_after=None):
        """A callback by which every step takes its time, until one raises."""
        steps = 0

        def count(batch, logs):
            nonlocal steps
            steps += 1
            self.now += SECONDS_PER_STEP
            if steps == stop_after:
                raise KeyboardInterrupt

        return keras.callbacks.LambdaCallback(on_train_batch_end=count)


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_graphs")]


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(intervals, "time", clock)
    return clock


@pytest.fixture
def training(tiny_training):
    return tiny_training.replace(
        train_steps=1000,
        steps_per_evaluation=4,
        schedule="cosine",
        warmup_steps=2,
        train_minutes=2.0,
    )


def test_ends_with_its_time(clock, tiny_config, training, tmp_path, logged):
    """Killed, it has the time that is left when it is started again."""

    def train_again(**kwargs):
        clock.now += 1000  # which is nobody's
        return train(
            tiny_config, training, tmp_path, callbacks=[clock.ticking(**kwargs)]
        )

    with pytest.raises(KeyboardInterrupt):
        train_again(stop_after=6)
    model = train_again()
    assert "The 2 train_minutes are over" in logged()
    rows = {row["step"]: row for row in read_metrics(tmp_path)}
    # Two steps after the checkpoint of the fourth were lost, and their time.
    assert list(rows) == [4, 8, 12]
    # Those with which the last steps began.
    rates = [
        row["learning_rate"] / training.optimizer.learning_rate
        for row in rows.values()
    ]
    assert rates == pytest.approx([0.85, 0.37, 0.02], abs=0.02)
    assert rows[12]["minutes"] == pytest.approx(2, abs=0.1)
    assert "val_sequence_accuracy" in rows[12]
    assert int(model.count_params()) == load_model(tmp_path).count_params()
    train_again(stop_after=1)
    assert "nothing to do" in logged()


def test_a_callback_may_set_a_constant_rate(
    clock, tiny_config, training, tmp_path
):
    training = training.replace(schedule="constant", warmup_steps=0)
    rates = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / 2**epoch)
    callbacks = [rates, clock.ticking()]
    train(tiny_config, training, tmp_path, callbacks=callbacks)
    found = [row["learning_rate"] for row in read_metrics(tmp_path)]
    assert found == pytest.approx([0.1 / 2**n for n in range(len(found))])

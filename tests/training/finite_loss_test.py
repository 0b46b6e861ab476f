import math

import numpy as np
import pytest

from tests.conftest import MODULE
from tests.training.checkpoints import newest_checkpoint
from tpt_keras.errors import UsageError
from tpt_keras.models.load_model import load_model
from tpt_keras.training import problem_task
from tpt_keras.training.callbacks import FiniteLoss
from tpt_keras.training.callbacks import NonFiniteLossError
from tpt_keras.training.run import MAX_ROLLBACKS
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.train import train
from tpt_keras.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("without_graphs")


@pytest.fixture(autouse=True)
def unevaluated(monkeypatch):
    """Trainings whose evaluations take no time."""
    score = {"loss": 1.0, "sequence_accuracy": 0.5, "token_accuracy": 0.5}
    monkeypatch.setattr(
        problem_task, "evaluate_batches", lambda *args: dict(score)
    )


@pytest.fixture
def poison(monkeypatch):
    """Sets a weight to NaN before a step, the first `times` times."""

    def poison(step, times=math.inf):
        count = 0

        def on_train_batch_begin(self, batch, logs=None):
            nonlocal count
            iterations = self.model.optimizer.iterations
            if int(iterations) + 1 == step and count < times:
                count += 1
                weight = self.model.model.trainable_variables[0]
                weight.assign(np.full(weight.shape, np.nan))

        monkeypatch.setattr(
            FiniteLoss, "on_train_batch_begin", on_train_batch_begin
        )

    return poison


@pytest.fixture
def first_batches(monkeypatch):
    """The numbers of the batches that each of `fit`'s feeds starts with."""
    starts = []
    feed = Trainer.feed

    def record(self, batches, start_step=0, *args, **kwargs):
        starts.append(start_step)
        return feed(self, batches, start_step, *args, **kwargs)

    monkeypatch.setattr(Trainer, "feed", record)
    return starts


def assert_whole_checkpoint(model_dir, step, data_step):
    numbers = newest_checkpoint(model_dir)
    assert (numbers["step"], numbers["data_step"]) == (step, data_step)
    assert any(name.startswith("model/") for name in numbers)
    for name, value in numbers.items():
        if np.issubdtype(value.dtype, np.floating):
            assert np.isfinite(value).all(), name


@pytest.mark.slow
def test_stops_at_once(tmp_path, simple_config, tiny_training, poison):
    """In the middle of an interval, and just before a checkpoint is due."""
    arguments = (simple_config, tiny_training, tmp_path)
    for step in (3, 4):
        poison(step, times=1)
        with pytest.raises(NonFiniteLossError) as caught:
            train(*arguments)
        assert isinstance(caught.value, UsageError)
        assert caught.value.step == step
        message = str(caught.value)
        assert "\n" not in message
        for part in (
            f"step {step} is not finite",
            "learning rate 0.01",
            f"its batch: {MODULE} 16",
            "checkpoint of step 2 is kept",
            "learning_rate",
            "on_nan",
        ):
            assert part in message
        assert_whole_checkpoint(tmp_path, step=2, data_step=2)
        assert [row["step"] for row in read_metrics(tmp_path)] == [2]
        assert not (tmp_path / "model.keras").exists()
    # Nothing is lost but the interval.
    train(*arguments)
    assert_whole_checkpoint(tmp_path, step=4, data_step=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps_per_checkpoint", "message"),
    [
        (2, r"loss or the gradient of step 2 .*rate 1e\+38"),
        # The checkpoint would come before the loss that shows it.
        (1, r"norm of the weights of step 1 .*rate 1e\+38"),
    ],
)
def test_an_absurd_learning_rate(
    tmp_path, simple_config, tiny_training, steps_per_checkpoint, message
):
    training = tiny_training.replace(
        learning_rate=1e38,
        steps_per_checkpoint=steps_per_checkpoint,
    )
    with pytest.raises(NonFiniteLossError):
        train(simple_config, training, tmp_path)
    assert_whole_checkpoint(tmp_path, step=0, data_step=0)
    assert read_metrics(tmp_path) == []


@pytest.mark.slow
def test_gives_up_when_rollbacks_do_not_help_and_goes_on_when_they_do(
    tmp_path, simple_config, tiny_training, poison, first_batches, logged
):
    poison(step=3)
    training = tiny_training.replace(on_nan="rollback")
    arguments = (simple_config, training, tmp_path)
    with pytest.raises(NonFiniteLossError) as caught:
        train(*arguments)
    assert "learning_rate" in str(caught.value)
    printed = logged()
    assert printed.count("Going back to step 2.") == MAX_ROLLBACKS
    # Another batch every time.
    assert first_batches == [0, *range(3, 3 + MAX_ROLLBACKS)]
    last = first_batches[-1]
    assert_whole_checkpoint(tmp_path, step=2, data_step=last)
    # And from there it goes on, once the cause is gone; behind the batch of
    # another cause, which is there but once.
    first_batches.clear()
    poison(step=4, times=1)
    model = train(*arguments).model
    printed = logged()
    assert "step 4 is not finite" in printed
    assert printed.count("Going back to step 2.") == 1
    # Two batches, of which the second did not do; then from the next on.
    assert first_batches == [last, last + 2]
    assert_whole_checkpoint(tmp_path, step=4, data_step=last + 4)
    assert [row["step"] for row in read_metrics(tmp_path)] == [2, 4]
    for weight in model.get_weights():
        assert np.isfinite(weight).all()
    assert len(load_model(tmp_path).get_weights()) == len(model.get_weights())


@pytest.mark.parametrize("name", ["loss", "gradient_norm"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_watches_the_loss_and_the_gradient(name, value):
    described = []

    def describe(step):
        described.append(step)
        return "on purpose"

    callback = FiniteLoss(describe, lambda: 15)
    logs = {"loss": 1.0, "gradient_norm": 2.0}
    callback.on_train_batch_end(0, logs)
    assert described == []
    with pytest.raises(NonFiniteLossError):
        callback.on_train_batch_end(2, logs | {name: value})
    assert described == [18]


def test_logs_that_are_behind_tell_of_the_step_before():
    callback = FiniteLoss("of step {}".format, lambda: 15, steps_behind=2)
    logs = {"loss": 1.0, "gradient_norm": 2.0}
    bad = logs | {"loss": np.nan}
    # Two steps at once: the first two have their own logs.
    with pytest.raises(NonFiniteLossError):
        callback.on_train_batch_end(1, bad)
    with pytest.raises(NonFiniteLossError):
        callback.on_train_batch_end(3, bad)
    # The end of the epoch checks the last batch, before a checkpoint.
    callback.on_train_batch_end(3, logs)
    with pytest.raises(NonFiniteLossError):
        callback.on_epoch_end(0, bad)

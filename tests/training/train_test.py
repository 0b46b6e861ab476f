import gc
import json
import math
import pathlib
import typing
import warnings

import keras
import numpy as np
import pytest

from tests.conftest import MODULE
from tests.training.checkpoints import checkpoints_of
from tests.training.checkpoints import newest_checkpoint
from tpt_keras.data_generators import training_task
from tpt_keras.data_generators.task import training_batches
from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.models.configs import from_stored
from tpt_keras.models.load_model import load_model
from tpt_keras.training import problem_task
from tpt_keras.training.callbacks import FiniteLoss
from tpt_keras.training.optimizers import learning_rate_schedule
from tpt_keras.training.state import model_folder
from tpt_keras.training.state.checkpoints import TrainingState
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.train import train
from tpt_keras.training.trainer import Trainer

# Of a split as many problems as of the validation set, which is enough to see
# that they are evaluated.

pytestmark = pytest.mark.usefixtures("without_graphs")


class KilledError(Exception):
    """Ends a training in the middle."""


class Uninterrupted(typing.NamedTuple):
    """A training that nothing disturbed."""

    model_dir: pathlib.Path
    model: Transformer


def timeless_metrics(model_dir):
    """The log without the values that depend on the machine."""
    return [
        {k: v for k, v in row.items() if not k.endswith("_per_second")}
        for row in read_metrics(model_dir)
    ]


def checkpointed(model_dir, name):
    """A number in the newest checkpoint."""
    return newest_checkpoint(model_dir)[name]


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
    model_dir = tmp_path_factory.mktemp("uninterrupted") / "model"
    model = train(
        dropout_config,
        tiny_training.replace(evaluation_examples=20),
        model_dir,
        preset="tp_transformer_tiny",
    ).model
    return Uninterrupted(model_dir, model)


@pytest.mark.slow
def test_what_a_training_leaves(uninterrupted, tiny_training):
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
    assert type(model) is Transformer
    assert getattr(model, "optimizer", None) is None
    assert {path.name for path in (model_dir / "logs").iterdir()} == {
        "extrapolate",
        "interpolate",
        "train",
        "validation",
    }
    for path in (model_dir / "logs").iterdir():
        assert list(path.glob("events.out.tfevents*"))
    assert_same_weights(load_model(model_dir), model)
    # One before the first step, one after every interval.
    assert len(checkpoints_of(model_dir)) == 3
    for name in ("step", "data_step"):
        assert checkpointed(model_dir, name) == tiny_training.run.train_steps


def test_the_configuration_beside_the_model(
    uninterrupted, dropout_config, tiny_training
):
    config = json.loads((uninterrupted.model_dir / "config.json").read_text())
    assert config["preset"] == "tp_transformer_tiny"
    model_config = from_stored(config["model"])
    assert model_config == dropout_config
    assert type(tiny_training).from_stored(
        config["training"]
    ) == tiny_training.replace(evaluation_examples=20)


def test_the_metrics(uninterrupted, tiny_training):
    rows = read_metrics(uninterrupted.model_dir)
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
            tiny_training.optimizer.learning_rate
        )
        # A problem has some 45 tokens here.
        ratio = row["tokens_per_second"] / row["examples_per_second"]
        assert 35.0 < ratio < 55.0
    # An untrained model guesses; a few steps of this size help it at once.
    assert rows[1]["loss"] < rows[0]["loss"]


@pytest.mark.slow
def test_the_first_loss_is_that_of_the_first_batch(
    tmp_path, tiny_config, tiny_training
):
    """The logged values equal those computed with NumPy."""
    training = tiny_training.replace(train_steps=1, seed=1)
    batches, validation = training_batches(
        training_task(training), tiny_config, training
    )
    keras.utils.set_random_seed(training.run.seed)
    model = Transformer(tiny_config)

    def loss(inputs, targets):
        logits = keras.ops.convert_to_numpy(model(inputs)).astype("float64")
        log_shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        of_target = np.take_along_axis(log_shares, targets[..., None], -1)
        return -of_target[..., 0][targets != 0]

    first = loss(*next(batches.iterate())).mean()
    model = train(tiny_config, training, tmp_path).model
    [row] = read_metrics(tmp_path)
    assert row["step"] == 1
    assert row["loss"] == pytest.approx(first, rel=1e-4)
    # And validation comes after the step, over the validation set alone.
    losses = [loss(*batch) for batch in validation.iterate(num_epochs=1)]
    assert len(losses) == math.ceil(20 / 16)
    mean = np.concatenate(losses).mean()
    assert row["val_loss"] == pytest.approx(mean, rel=1e-4)
    # A mean of the batches' means would differ.
    assert abs(np.mean([batch.mean() for batch in losses]) - mean) > 3e-4 * mean


def test_a_finished_training_has_nothing_to_do(
    uninterrupted, dropout_config, tiny_training, monkeypatch, logged
):
    model_dir, model = uninterrupted
    before = written(model_dir)

    def fit(*args, **kwargs):
        raise AssertionError("nothing was to be done")

    monkeypatch.setattr(keras.Model, "fit", fit)
    again = train(
        dropout_config, tiny_training, model_dir, preset="tp_transformer_tiny"
    ).model
    assert "nothing to do" in logged()
    assert_same_weights(again, model)
    assert written(model_dir) == before


def written(folder):
    """The values of each file's `stat` that a write changes."""
    stats = {path: path.stat() for path in folder.rglob("*")}
    return {path: (s.st_ino, s.st_mtime_ns) for path, s in stats.items()}


def test_another_training_in_the_same_folder_is_refused(
    uninterrupted, dropout_config, tiny_training
):
    model_dir = uninterrupted.model_dir
    training = tiny_training.replace(learning_rate=0.5)
    with pytest.raises(UsageError):
        train(dropout_config, training, model_dir, preset="tp_transformer_tiny")


@pytest.mark.slow
def test_goes_on_whenever_it_was_killed(
    tmp_path, uninterrupted, dropout_config, tiny_training, monkeypatch
):
    model_dir, model = uninterrupted
    arguments = (
        dropout_config,
        tiny_training.replace(evaluation_examples=20),
        tmp_path,
        "tp_transformer_tiny",
    )

    def die(*args, **kwargs):
        raise KilledError

    # In the second interval, behind the first checkpoint.
    def die_in_the_third_step(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == 3:
            raise KilledError

    train_and_be_killed(
        monkeypatch,
        FiniteLoss,
        "on_train_batch_end",
        die_in_the_third_step,
        *arguments,
    )
    assert len(checkpoints_of(tmp_path)) == 2
    assert len(read_metrics(tmp_path)) == 1
    # After the second evaluation, before the second checkpoint.
    train_and_be_killed(monkeypatch, TrainingState, "save", die, *arguments)
    assert len(checkpoints_of(tmp_path)) == 2
    assert len(read_metrics(tmp_path)) == 2
    # After the second checkpoint, before the model is saved.
    train_and_be_killed(
        monkeypatch, model_folder, "save_finished_model", die, *arguments
    )
    assert len(checkpoints_of(tmp_path)) == 3
    assert not (tmp_path / "model.keras").exists()
    assert_same_weights(train(*arguments).model, model)
    assert_same_weights(load_model(tmp_path), model)
    # The losses of the intervals that were started anew are the same, too.
    assert timeless_metrics(tmp_path) == timeless_metrics(model_dir)
    assert_same_weights(
        load_model(tmp_path, best=True), load_model(model_dir, best=True)
    )


@pytest.fixture(scope="module")
def uneven(tmp_path_factory, simple_config, tiny_training):
    """The folder of a training whose numbers of steps do not divide."""
    model_dir = tmp_path_factory.mktemp("uneven") / "model"
    training = tiny_training.replace(
        train_steps=7,
        steps_per_checkpoint=2,
        steps_per_evaluation=4,
        schedule="cosine",
        warmup_steps=2,
        keep_checkpoints=2,
        profile_steps=(2, 3),
    )
    train(simple_config, training, model_dir)
    return model_dir, training


@pytest.mark.slow
def test_a_row_for_every_checkpoint_and_the_shorter_end(uneven):
    model_dir, training = uneven
    rows = read_metrics(model_dir)
    assert [row["step"] for row in rows] == [2, 4, 6, 7]
    # An evaluation comes with the last step in any case.
    evaluated = [row["step"] for row in rows if "val_loss" in row]
    assert evaluated == [4, 7]
    assert checkpointed(model_dir, "step") == 7
    rate = learning_rate_schedule(training)
    for row in rows:
        assert row["learning_rate"] == pytest.approx(
            float(rate(row["step"])), abs=1e-9
        )


@pytest.mark.slow
def test_no_examples_no_evaluation_of_the_splits(uneven):
    for row in read_metrics(uneven[0]):
        for name in row:
            assert not name.startswith(("interpolate", "extrapolate")), name


@pytest.mark.slow
def test_keeps_as_many_checkpoints_as_asked_for(uneven):
    assert len(checkpoints_of(uneven[0])) == 2


@pytest.mark.slow
def test_a_profile(uneven):
    (path,) = (uneven[0] / "logs").rglob("*.xplane.pb")
    assert path.stat().st_size > 1000


@pytest.fixture
def judged(monkeypatch):
    """Evaluations whose scores are given, of weights that are noted down."""
    scores = {2: 0.25, 4: 0.5, 6: 0.375, 8: 0.5, 10: 0.125}
    weights = {}

    def evaluate_batches(trainer, batches):
        step = int(trainer.optimizer.iterations)
        weights[step] = trainer.model.get_weights()
        return {
            "loss": 1.0,
            "sequence_accuracy": scores[step],
            "token_accuracy": 0.0,
        }

    monkeypatch.setattr(problem_task, "evaluate_batches", evaluate_batches)
    return weights


@pytest.fixture(scope="module")
def long_training(tiny_training):
    return tiny_training.replace(
        train_steps=10,
        steps_per_checkpoint=1,
        steps_per_evaluation=2,
        max_steps_without_improvement=3,
    )


def assert_stopped_at_step_8(model_dir, weights, printed):
    assert "Stopped at step 8: no better validation since step 4." in printed
    assert [row["step"] for row in read_metrics(model_dir)] == [*range(1, 9)]
    assert checkpointed(model_dir, "step") == 8
    for best, step in ((False, 8), (True, 4)):
        saved = load_model(model_dir, best).get_weights()
        for ours, theirs in zip(saved, weights[step], strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_stops_without_improvement_and_keeps_the_best(
    tmp_path, simple_config, long_training, judged, logged
):
    arguments = (simple_config, long_training, tmp_path)
    model = train(*arguments).model
    assert_stopped_at_step_8(tmp_path, judged, logged())
    assert sorted(judged) == [2, 4, 6, 8]
    # It is finished.
    assert_same_weights(train(*arguments).model, model)
    assert "nothing to do" in logged()


@pytest.mark.slow
def test_stops_at_the_same_step_when_killed_between(
    tmp_path, simple_config, long_training, judged, logged, monkeypatch
):
    arguments = (simple_config, long_training, tmp_path)

    def die_in_step(step):
        def die(self, batch, logs=None):
            if int(self.model.optimizer.iterations) == step:
                raise KilledError

        return die

    def die(*args, **kwargs):
        raise KilledError

    # Between the best and the last evaluation, between the last but one and
    # the last, and where all is done but for the model's file.
    for step in (5, 8):
        train_and_be_killed(
            monkeypatch,
            FiniteLoss,
            "on_train_batch_end",
            die_in_step(step),
            *arguments,
        )
        assert checkpointed(tmp_path, "step") == step - 1
    train_and_be_killed(
        monkeypatch, model_folder, "save_finished_model", die, *arguments
    )
    assert not (tmp_path / "model.keras").exists()
    logged()
    train(*arguments)
    assert_stopped_at_step_8(tmp_path, judged, logged())


def test_every_option_reaches_the_trainer(
    tmp_path, simple_config, tiny_training, monkeypatch
):
    class CompiledError(Exception):
        """Ends the training when all has been seen."""

    def compile_(trainer, **kwargs):
        assert trainer.global_clipnorm == 0.375
        assert trainer.gradient_accumulation_steps == 4
        assert trainer.dtype_policy.name == "mixed_bfloat16"
        assert kwargs["jit_compile"] is True
        assert kwargs["steps_per_execution"] == 2
        raise CompiledError

    monkeypatch.setattr(Trainer, "compile", compile_)
    training = tiny_training.replace(
        global_clipnorm=0.375,
        precision="mixed_bfloat16",
        gradient_accumulation_steps=4,
        jit_compile=True,
        steps_per_execution=2,
    )
    with pytest.raises(CompiledError):
        train(simple_config, training, tmp_path)


@pytest.mark.parametrize(
    ("steps", "train_steps"),
    [
        (3, 4),
        # It divides the training and not the interval, and the reverse.
        (4, 12),
        (2, 5),
    ],
)
def test_steps_per_execution_must_divide(tiny_training, steps, train_steps):
    with pytest.raises(UsageError) as caught:
        tiny_training.replace(
            train_steps=train_steps, steps_per_execution=steps
        )
    assert caught.value.field == "steps_per_execution"


def test_rematerialized_dropout_is_refused(
    tmp_path, dropout_config, tiny_training
):
    with pytest.raises(UsageError):
        train(
            dropout_config,
            tiny_training.replace(rematerialize=True),
            tmp_path / "model",
        )
    assert not (tmp_path / "model").exists()


def test_validation_problems_are_never_trained_on(simple_config, tiny_training):
    training, validation = training_batches(
        training_task(tiny_training), simple_config, tiny_training
    )
    seen = all_problems(training, num_epochs=2)
    unseen = all_problems(validation)
    assert len(validation) == len(unseen) == len(set(unseen)) == 20
    assert len(training) == 580
    assert len(seen) == 2 * 580
    assert len(set(seen)) == 580
    assert not set(seen) & set(unseen)


def test_validation_problems_are_of_every_difficulty(
    simple_config, tiny_training
):
    training = tiny_training.replace(validation_examples=100)
    _, validation = training_batches(
        training_task(training), simple_config, training
    )
    lengths = [len(question) for question, _ in all_problems(validation)]
    everything = [
        len(question)
        for batches in training_batches(
            training_task(training), simple_config, training
        )
        for question, _ in all_problems(batches)
    ]
    # The first hundred of the files would be the short ones.
    assert np.mean(lengths) == pytest.approx(np.mean(everything), abs=1.0)
    assert np.std(everything) > 1.0


def test_the_validation_set_is_the_seeds(simple_config, tiny_training):
    sets = []
    for seed in (0, 0, 1):
        training = tiny_training.replace(seed=seed)
        sets.append(
            set(
                all_problems(
                    training_batches(
                        training_task(training), simple_config, training
                    )[1]
                )
            )
        )
    assert sets[0] == sets[1]
    assert sets[0] != sets[2]


@pytest.mark.parametrize("apart", [600, 1000])
def test_too_few_problems(simple_config, tiny_training, apart):
    training = tiny_training.replace(validation_examples=apart)
    with pytest.raises(UsageError):
        training_batches(training_task(training), simple_config, training)


def test_a_missing_data_folder_leaves_no_model_folder(
    tmp_path, simple_config, tiny_training
):
    training = tiny_training.replace(data_dir=str(tmp_path / "nothing"))
    with pytest.raises(UsageError):
        train(simple_config, training, tmp_path / "model")
    assert not (tmp_path / "model").exists()


class Stop(keras.callbacks.Callback):
    """Stops a training at a batch of its second interval, or at its end."""

    def __init__(self, batch=None):
        super().__init__()
        self._batch = batch

    def on_epoch_begin(self, epoch, logs=None):
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self._epoch == 1 and batch == self._batch:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if self._epoch == 1 and self._batch is None:
            assert "val_sequence_accuracy" in logs
            self.model.stop_training = True


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "step"), [(None, 4), (0, 3)])
def test_a_callback_stops_a_training(
    tmp_path, simple_config, tiny_training, logged, batch, step
):
    training = tiny_training.replace(train_steps=10)
    arguments = (simple_config, training, tmp_path)
    result = train(*arguments, callbacks=[Stop(batch)])
    assert f"Stopped at step {step} by a" in logged()
    assert [row["step"] for row in result.history] == [2, step]
    for name in ("step", "data_step", "optimizer/0"):
        assert checkpointed(tmp_path, name) == step
    # It is finished.
    assert_same_weights(train(*arguments).model, result.model)

"""A training from its configuration to a finished model.

`train` prepares, `_fit` calls Keras's `fit`, `Intervals` acts at the end of
each interval between two checkpoints, and `backends` have the step.
"""

import contextlib
import logging
import pathlib
import tempfile
from collections.abc import Sequence
from typing import Any

import keras

from tpt_keras.errors import UsageError
from tpt_keras.models.configs import ModelConfig
from tpt_keras.models.configs import to_stored
from tpt_keras.models.presets import FREE_FIELDS
from tpt_keras.models.stored import BEST_MODEL_FILE
from tpt_keras.models.stored import MODEL_FILE
from tpt_keras.models.stored import load_model
from tpt_keras.models.stored import resolve
from tpt_keras.models.weights import copy_weights
from tpt_keras.models.weights import is_quantized
from tpt_keras.training.backends import CurrentBackend
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.intervals import Intervals
from tpt_keras.training.intervals import TimeLimit
from tpt_keras.training.learner import Learner
from tpt_keras.training.optimizers import make_optimizer
from tpt_keras.training.questions import QuestionLearner
from tpt_keras.training.state import model_folder
from tpt_keras.training.state.model_folder import TrainingState
from tpt_keras.training.state.model_folder import checkpoint_numbers
from tpt_keras.training.trainer import Trainer
from tpt_keras.typing import StrPath

_log = logging.getLogger(__name__)


def train(
    model_config: ModelConfig,
    config: TrainingConfig,
    model_dir: StrPath,
    preset: str | None = None,
    strategy: Any = None,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    learner_class: type[Learner] = QuestionLearner,
) -> Any:
    """Trains a model, or resumes the training of the same folder.

    Args:
        model_config: A `ModelConfig`, such as a `TransformerConfig`.
        config: A `TrainingConfig`.
        model_dir: Folder of the training; see `state.model_folder`.
        preset: Name of the preset that `model_config` comes from, for the
            record.
        strategy: A strategy that `make_strategy` made.
        callbacks: Keras callbacks. They see the model. An epoch lies between
            two checkpoints; its logs hold the metrics of the evaluation, if
            there was one.
        learner_class: `QuestionLearner`, or `TextLearner` for a language model.

    Returns:
        The trained model. `read_metrics(model_dir)` reads its history.

    Raises:
        UsageError: If the folder belongs to another training, if another
            process trains there, if the data is missing or has changed, or
            if `callbacks` has one that cannot do its work here.
        NonFiniteLossError: If a loss is not finite.

    Example:

    ```python
    model = train(
        PRESETS["tp_transformer_tiny"],
        TrainingConfig(
            DataConfig(["numbers__place_value"], batch_size=128),
            Adam(learning_rate=1e-3, schedule="cosine"),
            RunConfig(train_steps=1000),
        ),
        "models/place_value",
    )
    print(model.solve(["What is 1 + 1?"]))
    ```
    """
    model_dir = pathlib.Path(model_dir)
    backend = CurrentBackend(strategy)
    _check_callbacks(callbacks, config.optimizer)
    _check_devices(config, backend, learner_class)
    learner = learner_class(model_config, config)
    record = {
        "preset": preset,
        "model": to_stored(learner.model_config),
        "training": config.to_stored(),
        "data": learner.fingerprints,
        "validated_by": learner.validated_by,
    }
    model_folder.check_config(model_dir, record)
    if (model_dir / MODEL_FILE).is_file():
        _log.info("%s holds a finished model: nothing to do.", model_dir)
        return load_model(model_dir, classes=learner.model_classes)
    initial = _initial_model(learner, config, model_dir)
    with _output_folder(model_dir, backend) as output_dir:
        model_folder.write_config(output_dir, record)
        keras.utils.set_random_seed(config.run.seed)
        with backend.scope():
            trainer = make_trainer(learner.model_config, config, learner_class)
            if initial:
                copy_weights(initial, trainer.model)
        state = TrainingState(
            trainer,
            model_dir / model_folder.CHECKPOINTS,
            config.run.keep_checkpoints,
        )
        path = state.restore()
        if path:
            _log.info("Resuming from %s (step %d).", path, state.step)
        intervals = Intervals(trainer, state, config, learner, output_dir)
        _fit(trainer, intervals, config, learner.training, callbacks)
        step = _restored_step(callbacks, config.run)
        if step:
            model_folder.write_config(output_dir, {**record, "step": step})
        model_folder.save_model(trainer.model, output_dir)
        return trainer.model


def make_trainer(
    model_config: ModelConfig,
    config: TrainingConfig,
    learner_class: type[Learner] = QuestionLearner,
) -> Trainer:
    """Makes a new model and its compiled `Trainer`; see `train`."""
    trainer = learner_class.make_trainer(model_config, config)
    trainer.compile(make_optimizer(config), jit_compile=False)
    # A checkpoint is restored into its variables.
    trainer.optimizer.build(trainer.model.trainable_variables)
    return trainer


def _fit(trainer, intervals, config, batches, callbacks):
    callbacks = [intervals, *callbacks]
    if config.run.train_minutes:
        callbacks.append(TimeLimit(config, intervals))
    interval, train_steps = config.run.interval, config.run.train_steps
    step = intervals.state.step
    epoch, done = divmod(step, interval)
    # Within an interval, a callback has ended the training already.
    if done or step == train_steps:
        return
    _log.info("Training from step %d to step %d.", step, train_steps)
    with trainer.feed(batches, step) as feed:
        trainer.fit(
            feed,
            initial_epoch=epoch,
            epochs=-(-train_steps // interval),
            steps_per_epoch=interval,
            shuffle=False,  # the batches are in random order already
            callbacks=callbacks,
            verbose=0,
        )
    if intervals.state.step < train_steps:
        _log.info("Stopped at step %d.", intervals.state.step)


@contextlib.contextmanager
def _output_folder(model_dir, backend):
    """Locks the folder of a training; all workers but one have another."""
    if backend.is_chief:
        with model_folder.training_lock(model_dir):
            yield model_dir
    else:
        with tempfile.TemporaryDirectory() as temporary:
            yield pathlib.Path(temporary)


def _initial_model(learner, config, model_dir):
    """Loads the model of `init_from`, or `None` for other weights."""
    checkpoints = model_dir / model_folder.CHECKPOINTS
    if not config.run.init_from or checkpoint_numbers(checkpoints):
        return None
    folder = resolve(config.run.init_from)
    best = (folder / BEST_MODEL_FILE).is_file()
    model = load_model(folder, best, learner.model_classes)
    there, here = map(to_stored, (model.config, learner.model_config))
    found = [
        difference
        for name, difference in model_folder.differences(there, here)
        # A model can learn another order of answers.
        if name not in (*FREE_FIELDS, "answer_order")
    ]
    if found:
        raise UsageError(
            f"The model of `init_from` in {str(folder)!r} has another "
            f"architecture ({'; '.join(found)}). Take the same `preset` and "
            "`hparams`, or another model.",
            field="init_from",
            path=folder,
        )
    if is_quantized(model):
        raise UsageError(
            f"The model of `init_from` in {str(folder)!r} is quantized. Take "
            "the model that it was made from.",
            field="init_from",
            path=folder,
        )
    which = "best" if best else "last"
    _log.info("Starting with the %s model of %s.", which, folder)
    return model


def _restored_step(callbacks, run):
    """Returns the step of the weights that a callback has put back, or 0."""
    steps = [
        min((callback.best_epoch + 1) * run.interval, run.train_steps)
        for callback in callbacks
        if isinstance(callback, keras.callbacks.EarlyStopping)
        and callback.restore_best_weights
        and callback.best_weights is not None
    ]
    return steps[-1] if steps else 0


def _check_callbacks(callbacks, optimizer):
    kinds = (keras.callbacks.BackupAndRestore,)
    if not optimizer.rate_is_constant:
        kinds += (
            keras.callbacks.LearningRateScheduler,
            keras.callbacks.ReduceLROnPlateau,
        )
    for callback in callbacks:
        if isinstance(callback, kinds):
            raise UsageError(
                f"`callbacks` cannot have a {type(callback).__name__}: a "
                "training resumes from its own checkpoints, and its rate "
                "follows a `schedule` that is not constant, or `warmup_steps`.",
                field="callbacks",
            )


def _check_devices(config, backend, learner_class):
    if backend.num_replicas > 1 and not learner_class.learns_on_replicas:
        raise UsageError(
            "A language model is trained on one device, because it remembers "
            "the rows of a batch. Set `distribution` to none.",
            field="distribution",
        )
    if config.run.train_minutes and backend.num_workers > 1:
        raise UsageError(
            "`train_minutes` needs a single process: the clocks of several "
            "would end their trainings at different steps. Set `train_steps`.",
            field="train_minutes",
        )

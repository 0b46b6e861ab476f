"""A training from its configuration to a finished model."""

import contextlib
import dataclasses
import logging
import math
import pathlib
import tempfile

import keras

from tpt_keras.errors import UsageError
from tpt_keras.models.configs import to_stored
from tpt_keras.models.load_model import BEST_MODEL_FILE
from tpt_keras.models.load_model import load_model
from tpt_keras.models.weights import lasting_weights
from tpt_keras.training.backends import check_jit_compile
from tpt_keras.training.backends import default_strategy
from tpt_keras.training.backends import is_chief
from tpt_keras.training.backends import num_replicas
from tpt_keras.training.backends import num_workers
from tpt_keras.training.backends import scope
from tpt_keras.training.optimizers import make_optimizer
from tpt_keras.training.problem_task import ProblemTask
from tpt_keras.training.run import TrainingRun
from tpt_keras.training.state import model_folder
from tpt_keras.training.state.checkpoints import TrainingState
from tpt_keras.training.state.checkpoints import checkpoint_numbers
from tpt_keras.training.state.logs import best_row
from tpt_keras.training.state.logs import objective
from tpt_keras.training.state.logs import read_metrics

# Fields that another model with the same weights may have otherwise.
_NO_ARCHITECTURE = (
    "dropout",
    "initialization",
    "max_question_length",
    "max_answer_length",
)

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """The result of a training.

    Attributes:
        model: The trained model.
        history: The rows of `metrics.jsonl`; see `MetricsLog`.
    """

    model: keras.Model
    history: list

    @property
    def best_score(self):
        """The best validation sequence accuracy; NaN without an evaluation.

        For a language model, the fewest bits per character.
        """
        row = best_row(self.history)
        return row[objective(self.history)] if row else math.nan

    @property
    def best_step(self):
        """The first step that reached it; 0 without an evaluation."""
        row = best_row(self.history)
        return row["step"] if row else 0


def train(
    model_config,
    config,
    model_dir,
    preset=None,
    strategy=None,
    callbacks=(),
    make_task=ProblemTask,
):
    """Trains a model, or resumes the training of the same folder.

    Args:
        model_config: A `ModelConfig`, such as a `TransformerConfig`.
        config: A `TrainingConfig`.
        model_dir: Folder of the training; see `state.model_folder`.
        preset: Name of the preset that `model_config` comes from, for the
            record.
        strategy: A strategy, as `make_strategy` makes them: of
            `tf.distribute`, or on JAX a `keras.distribution.DataParallel`.
        callbacks: Keras callbacks. An epoch lies between two checkpoints; its
            logs hold the metrics of the evaluation, if there was one.
        make_task: Class of the task, called with `model_config` and `config`.
            Defaults to `ProblemTask`; a language model has `TextTask`.

    Returns:
        A `TrainingResult`: the model, its history and the best score.

    Raises:
        UsageError: If the folder belongs to another training, if another
            process trains there, or if the data is missing or has changed.
        NonFiniteLossError: If a loss is not finite.

    Example:

    ```python
    result = train(
        PRESETS["tp_transformer_tiny"],
        TrainingConfig(
            DataConfig(["numbers__place_value"], batch_size=128),
            Adam(learning_rate=1e-3, schedule="cosine"),
            RunConfig(train_steps=1000),
        ),
        "models/place_value",
    )
    print(result.best_score, result.model.solve(["What is 1 + 1?"]))
    ```
    """
    model_dir = pathlib.Path(model_dir)
    strategy = strategy or default_strategy()
    _check_config(model_config, config, strategy, make_task)
    task = make_task(model_config, config)
    model_config = task.model_config
    record = {
        "preset": preset,
        "model": to_stored(model_config),
        "training": config.to_stored(),
        "data": task.fingerprints,
    }
    model_folder.check_config(model_dir, record)
    model = _finished_model(model_dir, record, task)
    if model is not None:
        return TrainingResult(model, read_metrics(model_dir))
    weights = _initial_weights(task, config, model_dir)
    with contextlib.ExitStack() as stack:
        output_dir = model_dir
        if is_chief(strategy):
            stack.enter_context(model_folder.training_lock(model_dir))
        else:
            # Only the chief's files are kept.
            output_dir = pathlib.Path(
                stack.enter_context(tempfile.TemporaryDirectory())
            )
        model_folder.ensure_config(output_dir, record)
        keras.utils.set_random_seed(config.run.seed)
        with scope(strategy):
            trainer = make_trainer(model_config, config, task)
            for variable, values in zip(
                lasting_weights(trainer.model), weights or ()
            ):
                variable.assign(values)
        state = TrainingState(
            trainer,
            model_dir / model_folder.CHECKPOINTS,
            config.run.keep_checkpoints,
        )
        _restore_or_start(state, config)
        TrainingRun(trainer, state, config, task, output_dir, callbacks).run()
        _finish(trainer.model, output_dir, record)
        return TrainingResult(trainer.model, read_metrics(output_dir))


def make_trainer(model_config, config, task=ProblemTask):
    """Makes a new model that is ready to be trained.

    Args:
        model_config: A `ModelConfig`, such as a `TransformerConfig`.
        config: A `TrainingConfig`.
        task: The task, or its class.

    Returns:
        A compiled `Trainer`, its optimizer built.
    """
    remat = contextlib.nullcontext()
    if config.run.rematerialize:
        remat = keras.RematScope(
            mode="list_of_layers",
            layer_names=list(model_config.cell_names),
        )
    with remat:
        transformer = task.make_model(model_config, config)
    trainer = task.trainer_class(
        transformer,
        global_clipnorm=config.optimizer.global_clipnorm,
        gradient_accumulation_steps=config.run.gradient_accumulation_steps,
    )
    trainer.compile(
        optimizer=make_optimizer(config),
        jit_compile=config.run.jit_compile,
        steps_per_execution=config.run.steps_per_execution,
    )
    # A checkpoint is restored into its variables.
    trainer.optimizer.build(transformer.trainable_variables)
    return trainer


def _finished_model(model_dir, record, task):
    """Returns the model of a finished training, or `None`."""
    if not model_folder.is_finished(model_dir, record):
        return None
    try:
        model = load_model(model_dir, classes=task.model_classes)
    except UsageError as error:
        if not checkpoint_numbers(model_dir / model_folder.CHECKPOINTS):
            raise
        _log.info("%s It is made again from the last checkpoint.", error)
        return None
    _log.info("%s holds a finished model: nothing to do.", model_dir)
    return model


def _initial_weights(task, config, model_dir):
    """Returns the weights of `init_from`, or `None` for other weights."""
    checkpoints = model_dir / model_folder.CHECKPOINTS
    if not config.run.init_from or checkpoint_numbers(checkpoints):
        return None
    folder = pathlib.Path(config.run.init_from)
    best = (folder / BEST_MODEL_FILE).is_file()
    model = load_model(folder, best, task.model_classes)
    _check_same_architecture(model.config, task.model_config, folder)
    which = "best" if best else "last"
    _log.info("Starting with the %s model of %s.", which, folder)
    return model.get_weights()


def _check_same_architecture(there, here, folder):
    found = [f"{type(there).__name__} there, {type(here).__name__} here"]
    if type(there) is type(here):
        found = [
            f"{name}: {getattr(there, name)} there, {getattr(here, name)} here"
            for name in dataclasses.asdict(here)
            if name not in _NO_ARCHITECTURE
            and getattr(there, name) != getattr(here, name)
        ]
    if found:
        raise UsageError(
            f"The model of `init_from` in {str(folder)!r} has another "
            f"architecture ({'; '.join(found)}). Take the same `preset` and "
            "`hparams`, or another model.",
            field="init_from",
            path=folder,
        )


def _restore_or_start(state, config):
    path = state.restore()
    if not path:
        state.save()  # a rollback needs a checkpoint
        return
    _log.info("Resuming from %s (step %d).", path, state.step)
    if state.step % config.run.steps_per_execution:
        # A training that ended there is prolonged.
        raise UsageError(
            f"The training resumes from step {state.step}, which must be a "
            "multiple of `steps_per_execution`. Received: "
            f"{config.run.steps_per_execution}.",
            field="steps_per_execution",
        )


def _finish(model, model_dir, record):
    """Writes the files of a finished training, the model last."""
    # An existing model could not be loaded.
    model_folder.set_model_aside(model_dir, "damaged")
    model_folder.save_finished_model(model, model_dir, record)


def _check_config(model_config, config, strategy, task):
    """Checks a configuration against its model, task and devices."""
    run = config.run
    if run.rematerialize and not hasattr(model_config, "cell_names"):
        raise UsageError(
            "`rematerialize` recomputes a Transformer's cells. A "
            f"{type(model_config).__name__} has none: leave it out.",
            field="rematerialize",
        )
    if run.rematerialize and model_config.dropout:
        raise UsageError(
            "`rematerialize` needs a dropout of 0: dropout would drop other "
            "values when it is recomputed.",
            field="rematerialize",
        )
    if not task.runs_on_replicas and num_replicas(strategy) > 1:
        raise UsageError(
            "A language model is trained on one device, because it remembers "
            "the rows of a batch. Set `distribution` to none.",
            field="distribution",
        )
    if run.train_minutes and num_workers(strategy) > 1:
        raise UsageError(
            "`train_minutes` needs a single process: the clocks of several "
            "would end their trainings at different steps. Set `train_steps`.",
            field="train_minutes",
        )
    if run.jit_compile:
        check_jit_compile(strategy)

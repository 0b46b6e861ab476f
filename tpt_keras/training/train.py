"""A training from its configuration to a finished model."""

import contextlib
import dataclasses
import pathlib
import tempfile

import keras

from tpt_keras.errors import UsageError
from tpt_keras.models.configs import to_stored
from tpt_keras.models.load_model import BEST_MODEL_FILE
from tpt_keras.models.load_model import load_model
from tpt_keras.models.weights import lasting_weights
from tpt_keras.training import model_folder
from tpt_keras.training.backends import check_jit_compile
from tpt_keras.training.backends import default_strategy
from tpt_keras.training.backends import is_chief
from tpt_keras.training.backends import num_replicas
from tpt_keras.training.backends import num_workers
from tpt_keras.training.backends import scope
from tpt_keras.training.checkpoint_files import checkpoint_names
from tpt_keras.training.metrics_log import read_metrics
from tpt_keras.training.optimizers import make_optimizer
from tpt_keras.training.problem_task import ProblemTask
from tpt_keras.training.training_result import TrainingResult
from tpt_keras.training.training_run import TrainingRun
from tpt_keras.training.training_state import TrainingState

# What may differ where the weights of one model shall mean the same in another.
_NO_ARCHITECTURE = (
    "dropout",
    "initialization",
    "max_question_length",
    "max_answer_length",
)


def train(
    model_config,
    config,
    model_dir,
    preset=None,
    strategy=None,
    callbacks=(),
    make_task=ProblemTask,
):
    """Trains a model, or goes on where a training of the same folder was.

    Args:
        model_config: A `ModelConfig`, such as a `TransformerConfig`.
        config: A `TrainingConfig`.
        model_dir: Folder for everything that the training leaves.
        preset: Name of the preset that `model_config` comes from, for the
            record.
        strategy: A strategy, as `make_strategy` makes them: of
            `tf.distribute`, or on JAX a `keras.distribution.DataParallel`.
        callbacks: Callbacks of Keras. An epoch is what lies between two
            checkpoints; its logs hold the metrics of the evaluation, where
            there was one.
        make_task: Class of the task, made of `model_config` and `config`.
            Defaults to `ProblemTask`; a language model has `TextTask`.

    Returns:
        A `TrainingResult`: the model, its history and the best score.

    Raises:
        UsageError: If the folder belongs to another configuration or another
            process trains there, or if the data is not there or not what the
            training began with.
        NonFiniteLossError: If the loss is not finite any more.

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
            # What the other workers write is nobody's.
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
        _restore_or_start(state)
        _check_step(state, config)
        TrainingRun(
            trainer,
            state,
            config,
            task,
            output_dir,
            callbacks,
        ).run()
        _finish(trainer.model, output_dir, record)
        return TrainingResult(trainer.model, read_metrics(output_dir))


def _finished_model(model_dir, record, task):
    """The model of a training that is finished already, or `None`."""
    if not model_folder.is_finished(model_dir, record):
        return None
    try:
        model = load_model(model_dir, classes=task.model_classes)
    except UsageError as error:
        if not checkpoint_names(model_dir / model_folder.CHECKPOINTS):
            raise
        print(f"{error} It is made again.")
        return None
    print(f"{model_dir} holds a finished model: nothing to do.")
    return model


def _initial_weights(task, config, model_dir):
    """The weights to start with, or `None` for new ones, or to go on."""
    checkpoints = model_dir / model_folder.CHECKPOINTS
    if not config.run.init_from or checkpoint_names(checkpoints):
        return None
    folder = pathlib.Path(config.run.init_from)
    best = (folder / BEST_MODEL_FILE).is_file()
    model = load_model(folder, best, task.model_classes)
    model_config = task.model_config
    if type(model.config) is not type(model_config):
        raise UsageError(
            f"The model in --init_from={folder} is of a "
            f"{type(model.config).__name__}, and a "
            f"{type(model_config).__name__} is asked for. Take the same "
            "--preset, or another model."
        )
    differences = [
        f"{name}: {getattr(model.config, name)} there, "
        f"{getattr(model_config, name)} here"
        for name in dataclasses.asdict(model_config)
        if name not in _NO_ARCHITECTURE
        and getattr(model.config, name) != getattr(model_config, name)
    ]
    if differences:
        raise UsageError(
            f"The model in --init_from={folder} has another architecture "
            f"({'; '.join(differences)}). Take the same --preset and "
            "--hparams, or another model."
        )
    print(f"Starting with the {'best' if best else 'last'} model of {folder}.")
    return model.get_weights()


def _finish(model, model_dir, record):
    """Leaves what a finished training does, the model itself last."""
    # One that is there could not be loaded.
    model_folder.set_model_aside(model_dir, "damaged")
    model_folder.save_finished_model(model, model_dir, record)


def _check_config(model_config, config, strategy, task):
    if config.run.rematerialize and not model_config.cell_names:
        raise UsageError(
            "rematerialize computes a Transformer's cells again, which an "
            f"{type(model_config).__name__} has none of. Leave it out."
        )
    if config.run.rematerialize and model_config.dropout:
        raise UsageError(
            "rematerialize needs a dropout of 0: computed again, dropout "
            "would drop something else."
        )
    if not task.runs_on_replicas and num_replicas(strategy) > 1:
        raise UsageError(
            "A language model is trained on one device, because it remembers "
            "the rows of a batch: take --distribution=none."
        )
    if config.run.train_minutes and num_workers(strategy) > 1:
        raise UsageError(
            "train_minutes is for one process: every worker's clock would end "
            "its training at another step. Take --train_steps."
        )
    if config.run.jit_compile:
        check_jit_compile(strategy)


def make_trainer(model_config, config, task=ProblemTask):
    """A new model, ready to be trained.

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
    # For a checkpoint to be restored into it.
    trainer.optimizer.build(transformer.trainable_variables)
    return trainer


def _restore_or_start(state):
    path = state.restore()
    if path:
        print(f"Going on from {path} (step {state.step}).")
    else:
        state.save()  # so that there always is one to go back to


def _check_step(state, config):
    step = state.step
    if step % config.run.steps_per_execution:
        # Where a training ended that is prolonged now.
        raise UsageError(
            f"The training goes on from step {step}, which must be a multiple "
            f"of the {config.run.steps_per_execution} steps_per_execution."
        )

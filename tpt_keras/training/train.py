"""The fit loop."""

import contextlib
import dataclasses
import pathlib
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

from tpt_keras.data_generators.prepared_data import DATASETS
from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import BEST_MODEL_FILE
from tpt_keras.models.load_model import load_model
from tpt_keras.training import model_folder
from tpt_keras.training.distribution import distributed_dataset
from tpt_keras.training.distribution import is_chief
from tpt_keras.training.evaluate import evaluate
from tpt_keras.training.evaluate import evaluate_batches
from tpt_keras.training.finite_loss import FiniteLoss
from tpt_keras.training.finite_loss import NonFiniteLossError
from tpt_keras.training.interval_end import IntervalEnd
from tpt_keras.training.interval_end import is_stalled
from tpt_keras.training.metrics_log import MetricsLog
from tpt_keras.training.metrics_log import read_metrics
from tpt_keras.training.optimizer import learning_rate_schedule
from tpt_keras.training.optimizer import make_optimizer
from tpt_keras.training.profiler import Profiler
from tpt_keras.training.run_options import RunOptions
from tpt_keras.training.training_data import data_fingerprints
from tpt_keras.training.training_data import module_mix
from tpt_keras.training.training_data import training_batches
from tpt_keras.training.training_state import TrainingState
from tpt_keras.training.training_state import checkpoint_names
from tpt_keras.training.transformer_trainer import TransformerTrainer
from tpt_keras.visualization.learning_curves import draw_learning_curves

# Rollbacks to one and the same checkpoint before a training gives up.
MAX_ROLLBACKS = 3

# What has to be the same for the weights of one model to mean the same in
# another.
_ARCHITECTURE = (
    "hidden_dim",
    "intermediate_dim",
    "num_heads",
    "num_layers",
    "binding",
    "bind_embeddings",
    "layer_norm_epsilon",
    "vocabulary",
    "vocabulary_size",
)


def train(
    model_config, config, model_dir, preset=None, options=None, strategy=None
):
    """Trains a model, or goes on where a training of the same folder was.

    Args:
        model_config: A `TransformerConfig`.
        config: A `TrainingConfig`.
        model_dir: Folder for everything that the training leaves.
        preset: Name of the preset that `model_config` comes from, for the
            record.
        options: A `RunOptions`.
        strategy: A `tf.distribute` strategy, as `make_strategy` makes them.

    Returns:
        The trained `Transformer`.

    Raises:
        UsageError: If the folder belongs to another configuration or another
            process trains there, or if the data is not there or not what the
            training began with.
        NonFiniteLossError: If the loss is not finite any more.
    """
    model_dir = pathlib.Path(model_dir)
    options = options or RunOptions()
    strategy = strategy or tf.distribute.get_strategy()
    _check_options(model_config, config, options, strategy)
    training, validation = training_batches(model_config, config)
    record = {
        "preset": preset,
        "model": dataclasses.asdict(model_config),
        "training": dataclasses.asdict(config),
        "data": data_fingerprints(config),
    }
    model_folder.check_config(model_dir, record)
    model = _finished_model(model_dir, record)
    if model is not None:
        return model
    weights = _initial_weights(model_config, config, model_dir)
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
        keras.utils.set_random_seed(config.seed)
        with strategy.scope():
            trainer = _make_trainer(model_config, config, options)
            if weights:
                trainer.transformer.set_weights(weights)
        state = TrainingState(
            trainer,
            model_dir / model_folder.CHECKPOINTS,
            options.keep_checkpoints,
        )
        _restore_or_start(state)
        _check_step(state, options)
        _fit(trainer, state, config, options, training, validation, output_dir)
        _finish(trainer.transformer, output_dir, record)
    return trainer.transformer


def _finished_model(model_dir, record):
    """The model of a training that is finished already, or `None`."""
    if not model_folder.is_finished(model_dir, record):
        return None
    try:
        model = load_model(model_dir)
    except UsageError as error:
        if not checkpoint_names(model_dir / model_folder.CHECKPOINTS):
            raise
        print(f"{error} It is made again.")
        return None
    print(f"{model_dir} holds a finished model: nothing to do.")
    return model


def _initial_weights(model_config, config, model_dir):
    """The weights to start with, or `None` for new ones, or to go on."""
    checkpoints = model_dir / model_folder.CHECKPOINTS
    if not config.init_from or checkpoint_names(checkpoints):
        return None
    folder = pathlib.Path(config.init_from)
    best = (folder / BEST_MODEL_FILE).is_file()
    model = load_model(folder, best)
    differences = [
        f"{name}: {getattr(model.config, name)} there, "
        f"{getattr(model_config, name)} here"
        for name in _ARCHITECTURE
        if getattr(model.config, name) != getattr(model_config, name)
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
    path = model_dir / model_folder.LEARNING_CURVES_FILE
    with whole_file(path) as partial:
        draw_learning_curves(read_metrics(model_dir), partial)
    # One that is there could not be loaded.
    model_folder.set_model_aside(model_dir, "damaged")
    model_folder.save_finished_model(model, model_dir, record)


def _check_options(model_config, config, options, strategy):
    for steps in (config.train_steps, config.interval):
        if steps % options.steps_per_execution:
            raise UsageError(
                f"The {config.train_steps} train_steps and the "
                f"{config.interval} steps between checkpoints must be "
                f"multiples of the {options.steps_per_execution} "
                "steps_per_execution."
            )
    if options.rematerialize and model_config.dropout:
        raise UsageError(
            "rematerialize needs a dropout of 0: computed again, dropout "
            "would drop something else."
        )
    if options.jit_compile and strategy.num_replicas_in_sync > 1:
        raise UsageError(
            "jit_compile is for one device: the step of "
            f"{strategy.num_replicas_in_sync} replicas cannot be compiled. "
            "Leave it out, or take --distribution=none."
        )


def _make_trainer(model_config, config, options):
    remat = contextlib.nullcontext()
    if options.rematerialize:
        remat = keras.RematScope(
            mode="list_of_layers",
            layer_names=[
                f"{kind}_cell_{index}"
                for kind in ("encoder", "decoder")
                for index in range(model_config.num_layers)
            ],
        )
    with remat:
        transformer = Transformer(model_config, dtype=config.precision)
    trainer = TransformerTrainer(
        transformer,
        global_clipnorm=config.global_clipnorm,
        gradient_accumulation_steps=options.gradient_accumulation_steps,
    )
    trainer.compile(
        optimizer=make_optimizer(config),
        jit_compile=options.jit_compile,
        steps_per_execution=options.steps_per_execution,
    )
    # For a checkpoint to be restored into it.
    trainer.optimizer.build(transformer.trainable_variables)
    return trainer


def _restore_or_start(state):
    path = state.restore()
    if path:
        print(f"Going on from {path} (step {int(state.step)}).")
    else:
        state.save()  # so that there always is one to go back to


def _check_step(state, options):
    step = int(state.step)
    if step % options.steps_per_execution:
        # Where a training ended that is prolonged now.
        raise UsageError(
            f"The training goes on from step {step}, which must be a multiple "
            f"of the {options.steps_per_execution} steps_per_execution."
        )


def _fit(trainer, state, config, options, training, validation, model_dir):
    """Runs what is left."""
    rollbacks = []
    while int(state.step) < config.train_steps:
        if is_stalled(state, config, options):
            print(
                f"Stopped at step {int(state.step)}: no better validation "
                f"sequence accuracy since step {int(state.best_step)}."
            )
            return
        try:
            _fit_intervals(
                trainer, state, config, options, training, validation, model_dir
            )
        except NonFiniteLossError as error:
            if options.on_nan == "stop":
                raise NonFiniteLossError(
                    f"{error} The checkpoint of step {int(state.step)} is "
                    "kept. Train with a lower --learning_rate in another "
                    "folder, or go on with --on_nan=rollback, from the "
                    "checkpoint and with other batches.",
                    error.step,
                ) from None
            rollbacks.append(int(state.step))
            if rollbacks.count(rollbacks[-1]) > MAX_ROLLBACKS:
                raise NonFiniteLossError(
                    f"{error} {MAX_ROLLBACKS} rollbacks to step "
                    f"{rollbacks[-1]} did not help: lower --learning_rate.",
                    error.step,
                ) from None
            print(f"{error} Going back to step {rollbacks[-1]}.")
            _roll_back(state, error.step)


def _roll_back(state, failed_step):
    """Goes back to the last checkpoint, and on behind the failed batch."""
    failed = int(state.data_step) + failed_step - int(state.step)
    state.restore()
    state.data_step.assign(failed)
    state.save()


def _fit_intervals(
    trainer, state, config, options, training, validation, model_dir
):
    """Fits up to the last step, or to the next interval's end.

    An epoch of Keras is an interval between checkpoints. One is shorter where
    the numbers do not divide: the last, and after it the first of a training
    that is prolonged.
    """
    step = int(state.step)
    interval = config.interval
    epoch = step // interval
    epochs = config.train_steps // interval
    steps = interval
    if step % interval or epoch == epochs:
        epochs = epoch + 1
        steps = min(epochs * interval, config.train_steps) - step

    def steps_before(current_epoch):
        return step + (current_epoch - epoch) * interval

    def describe(failed_step):
        data_step = int(state.data_step) + failed_step - 1 - int(state.step)
        schedule = learning_rate_schedule(config)
        rate = float(
            schedule(failed_step - 1) if callable(schedule) else schedule
        )
        mix = module_mix(training, config, data_step)
        return f"learning rate {rate:.3g}; its batch: {mix}"

    log = MetricsLog(model_dir)
    log.drop_after(step)
    callbacks = [
        FiniteLoss(describe, steps_before),
        IntervalEnd(
            state,
            config,
            options,
            lambda: _evaluation(trainer, config, options, validation),
            log,
            lambda: model_folder.save_best_model(
                trainer.transformer, model_dir
            ),
        ),
    ]
    with contextlib.ExitStack() as stack:
        if options.profile_steps:
            profiler = Profiler(
                model_dir / "logs",
                *options.profile_steps,
                steps_before,
                options.steps_per_execution,
            )
            callbacks.append(profiler)
            # Keras leaves callbacks alone when one of them ends a training.
            stack.callback(profiler.stop)
        stack.enter_context(training.own_errors())
        trainer.fit(
            distributed_dataset(
                trainer.distribute_strategy, training, int(state.data_step)
            ),
            initial_epoch=epoch,
            epochs=epochs,
            steps_per_epoch=steps,
            shuffle=False,  # the batches are in random order already
            callbacks=callbacks,
            # A bar on a terminal, elsewhere two lines an interval.
            verbose=1 if sys.stdout.isatty() else 2,
        )


def _evaluation(trainer, config, options, validation):
    """The metrics of an evaluation; see `MetricsLog`."""
    metrics = {
        f"val_{name}": value
        for name, value in evaluate_batches(trainer, validation).items()
    }
    if not options.evaluation_examples:
        return metrics
    for split in ("interpolate", "extrapolate"):
        if split not in DATASETS[config.dataset]:
            continue
        accuracies = {
            f"{split}/{result['module']}": result["sequence_accuracy"]
            for result in evaluate(
                trainer,
                config.modules,
                [split],
                config.data_dir,
                config.batch_size,
                config.dataset,
                options.evaluation_examples,
            )
        }
        if accuracies:
            metrics[f"{split}_sequence_accuracy"] = float(
                np.mean(list(accuracies.values()))
            )
            metrics |= accuracies
    return metrics

"""The fit loop."""

import contextlib
import dataclasses
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from tpt_keras.data_generators.prepared_data import DATASETS
from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
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
from tpt_keras.training.training_data import module_mix
from tpt_keras.training.training_data import training_batches
from tpt_keras.training.training_state import TrainingState
from tpt_keras.training.transformer_trainer import TransformerTrainer
from tpt_keras.visualization.learning_curves import draw_learning_curves

# Rollbacks to one and the same checkpoint before a training gives up.
MAX_ROLLBACKS = 3


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
        UsageError: If the folder belongs to another configuration, or the
            data is not there.
        NonFiniteLossError: If the loss is not finite any more.
    """
    model_dir = pathlib.Path(model_dir)
    options = options or RunOptions()
    strategy = strategy or tf.distribute.get_strategy()
    _check_options(model_config, config, options)
    training, validation = training_batches(model_config, config)
    record = {
        "preset": preset,
        "model": dataclasses.asdict(model_config),
        "training": dataclasses.asdict(config),
    }
    with contextlib.ExitStack() as stack:
        output_dir = model_dir
        if not is_chief():
            # What the other workers write is nobody's.
            output_dir = pathlib.Path(
                stack.enter_context(tempfile.TemporaryDirectory())
            )
        model_folder.write_config(output_dir, record)
        if model_folder.is_finished(model_dir):
            print(f"{model_dir} holds a finished model: nothing to do.")
            return load_model(model_dir)
        keras.utils.set_random_seed(config.seed)
        with strategy.scope():
            trainer = _make_trainer(model_config, config, options)
        state = TrainingState(
            trainer, output_dir / "checkpoints", options.keep_checkpoints
        )
        _restore_or_start(state, model_dir / "checkpoints")
        _fit(trainer, state, config, options, training, validation, output_dir)
        model = trainer.transformer
        draw_learning_curves(
            read_metrics(output_dir), output_dir / "learning_curves.png"
        )
        model_folder.save_finished_model(model, output_dir, record)
    return model


def _check_options(model_config, config, options):
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


def _restore_or_start(state, folder):
    path = state.restore(folder)
    if path:
        print(f"Going on from {path} (step {int(state.step)}).")
    else:
        state.save()  # so that there always is one to go back to


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
    """Fits up to the last step, or to the next interval's length.

    An epoch of Keras is an interval between checkpoints. The last one is
    shorter where the numbers do not divide.
    """
    step = int(state.step)
    interval = config.interval
    epochs, rest = divmod(config.train_steps, interval)
    if step >= epochs * interval:
        epochs, steps = epochs + 1, rest
    else:
        steps = interval

    def describe(failed_step):
        data_step = int(state.data_step) + failed_step - 1 - int(state.step)
        schedule = learning_rate_schedule(config)
        rate = float(
            schedule(failed_step - 1) if callable(schedule) else schedule
        )
        mix = module_mix(training, config, data_step)
        return f"learning rate {rate:.3g}; its batch: {mix}"

    callbacks = [
        FiniteLoss(describe, interval),
        IntervalEnd(
            state,
            config,
            options,
            lambda: _evaluation(trainer, config, options, validation),
            MetricsLog(model_dir, step),
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
                interval,
                options.steps_per_execution,
            )
            callbacks.append(profiler)
            # Keras leaves callbacks alone when one of them ends a training.
            stack.callback(profiler.stop)
        trainer.fit(
            distributed_dataset(
                trainer.distribute_strategy, training, int(state.data_step)
            ),
            initial_epoch=step // interval,
            epochs=epochs,
            steps_per_epoch=steps,
            shuffle=False,  # the batches are in random order already
            callbacks=callbacks,
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

"""The fit loop."""

import dataclasses
import pathlib

import keras
import tensorflow as tf

from tpt_keras.data_generators.character_tokenizer import CharacterTokenizer
from tpt_keras.data_generators.prepared_data import problem_source
from tpt_keras.data_generators.prepared_data import train_splits
from tpt_keras.data_generators.problem_batches import ProblemBatches
from tpt_keras.data_generators.problem_mixture import ProblemMixture
from tpt_keras.data_generators.problem_slice import ProblemSlice
from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.models.load_model import load_model
from tpt_keras.training import model_folder
from tpt_keras.training.optimizer import make_optimizer
from tpt_keras.training.sequence_accuracy import SequenceAccuracy
from tpt_keras.training.token_accuracy import TokenAccuracy
from tpt_keras.training.token_cross_entropy import TokenCrossEntropy
from tpt_keras.visualization.learning_curves import draw_learning_curves


def train(model_config, config, model_dir, preset=None):
    """Trains a model, or goes on where a training of the same folder was.

    Args:
        model_config: A `TransformerConfig`.
        config: A `TrainingConfig`.
        model_dir: Folder for everything that the training leaves.
        preset: Name of the preset that `model_config` comes from, for the
            record.

    Returns:
        The trained `Transformer`.
    """
    model_dir = pathlib.Path(model_dir)
    training, validation = training_batches(model_config, config)
    resolved = {
        "preset": preset,
        "model": dataclasses.asdict(model_config),
        "training": dataclasses.asdict(config),
    }
    model_folder.write_config(model_dir, resolved)
    if model_folder.is_finished(model_dir):
        print(f"{model_dir} holds a finished model: nothing to do.")
        return load_model(model_dir)

    keras.utils.set_random_seed(config.seed)
    model = Transformer(model_config)
    compile_model(
        model,
        optimizer=make_optimizer(config),
        jit_compile=config.jit_compile,
    )
    checkpoints = _checkpoints(model, model_dir)
    step = _restore(checkpoints, model)
    _fit(model, config, model_dir, checkpoints, training, validation, step)
    draw_learning_curves(
        model_dir / "history.csv",
        _interval(config),
        config.train_steps,
        model_dir / "learning_curves.png",
    )
    model_folder.save_finished_model(model, model_dir, resolved)
    return model


def training_batches(model_config, config):
    """The training and the validation batches, cut by the seed.

    Args:
        model_config: A `TransformerConfig`.
        config: A `TrainingConfig`.

    Returns:
        Two `ProblemBatches` without a common example.
    """
    sources = [
        problem_source(
            config.data_dir,
            module,
            train_splits(config.dataset),
            config.dataset,
        )
        for module in config.modules
    ]
    apart = -(-config.validation_examples // len(sources))
    for module, source in zip(config.modules, sources):
        if len(source) <= apart:
            raise UsageError(
                f"Module {module} has {len(source)} training problems, of "
                f"which {apart} are set apart for validation. Generate more, "
                "or lower --validation_examples."
            )

    def batches(weights, **part):
        return ProblemBatches(
            ProblemMixture(
                [ProblemSlice(s, seed=config.seed, **part) for s in sources],
                weights,
            ),
            CharacterTokenizer(model_config.vocabulary),
            config.batch_size,
            seed=config.seed,
        )

    return (
        batches(config.module_weights or None, start=apart),
        batches(None, stop=apart),
    )


def compile_model(model, optimizer=None, jit_compile=False):
    """Compiles a model with the loss and the metrics of this task.

    Args:
        model: A `Transformer`.
        optimizer: A Keras optimizer; not needed for evaluation.
        jit_compile: Whether to compile with XLA, which does so anew for every
            length.
    """
    pad_id = model.tokenizer.pad_id
    model.compile(
        optimizer=optimizer,
        loss=TokenCrossEntropy(pad_id),
        metrics=[SequenceAccuracy(pad_id), TokenAccuracy(pad_id)],
        jit_compile=jit_compile,
    )


def _checkpoints(model, model_dir):
    model.optimizer.build(model.trainable_variables)
    return tf.train.CheckpointManager(
        tf.train.Checkpoint(
            model=model,
            optimizer=model.optimizer,
            # The states of the dropouts' seeds, which Keras does not track.
            seeds=model.non_trainable_variables,
        ),
        model_dir / "checkpoints",
        max_to_keep=3,
    )


def _restore(checkpoints, model):
    """Restores the newest checkpoint; returns the step that it was made at."""
    if checkpoints.latest_checkpoint:
        status = checkpoints.checkpoint.restore(checkpoints.latest_checkpoint)
        status.assert_existing_objects_matched()
    step = int(model.optimizer.iterations)
    if step:
        print(f"Going on from {checkpoints.latest_checkpoint} (step {step}).")
    return step


def _fit(model, config, model_dir, checkpoints, training, validation, step):
    """Runs what is left; an epoch of Keras is one evaluation's interval."""
    interval = _interval(config)
    history_path = model_dir / "history.csv"
    _cut_history(history_path, -(-step // interval))
    whole, rest = divmod(config.train_steps, interval)
    # The last interval is shorter where the numbers do not divide.
    for epochs, steps in ((whole, interval), (whole + bool(rest), rest)):
        initial_epoch = -(-step // interval)
        if initial_epoch >= epochs:
            continue
        model.fit(
            training.dataset(start_step=step),
            initial_epoch=initial_epoch,
            epochs=epochs,
            steps_per_epoch=steps,
            shuffle=False,  # the batches are in random order already
            validation_data=validation.dataset(num_epochs=1).cache(),
            callbacks=[
                keras.callbacks.TensorBoard(model_dir / "logs"),
                keras.callbacks.CSVLogger(history_path, append=step > 0),
                keras.callbacks.LambdaCallback(
                    on_epoch_end=lambda epoch, logs: checkpoints.save()
                ),
            ],
        )
        step = int(model.optimizer.iterations)


def _cut_history(path, epochs):
    """Drops what was logged after the checkpoint that training goes on from."""
    if path.exists():
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[: 1 + epochs]))


def _interval(config):
    """Steps between two evaluations."""
    return min(config.steps_per_evaluation, config.train_steps)

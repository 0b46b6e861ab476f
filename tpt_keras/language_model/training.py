"""The training of a `TransformerXL` on a text, and its evaluation."""

import math

import keras
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.language_model.config import TransformerXLConfig
from tpt_keras.language_model.text import TextSegments
from tpt_keras.language_model.text import read_text
from tpt_keras.language_model.text import text_fingerprint
from tpt_keras.language_model.text import text_part
from tpt_keras.language_model.text import text_vocabulary
from tpt_keras.language_model.transformer_xl import TransformerXL
from tpt_keras.training.step import token_metrics
from tpt_keras.training.trainer import Trainer


class TextLearner:
    """All that `train` needs to know of learning a text.

    A model that answers questions has a `QuestionLearner` in its place.

    Args:
        model_config: A `TransformerXLConfig`. Its vocabulary becomes the
            text's.
        config: A `TrainingConfig` with a `text_file`.

    Attributes:
        model_config: The configuration of the model to train.
        training: The training's `TextSegments`.
        validation: The validation's `TextSegments`.
        fingerprints: Dict with a hash of the text.

    Raises:
        UsageError: If the file is missing or too short, or if a segment is
            longer than the model accepts.
    """

    model_classes = (TransformerXL,)
    # A row's memory belongs to its stream.
    learns_on_replicas = False

    def __init__(self, model_config, config):
        if not isinstance(model_config, TransformerXLConfig):
            raise UsageError(
                "`text_file` is for a language model, such as "
                "transformer_xl_base. Any other model learns `modules`.",
                field="text_file",
            )
        if not config.data.text_file:
            raise UsageError(
                "A language model learns a text: `text_file` is missing.",
                field="text_file",
            )
        if config.run.gradient_accumulation_steps > 1:
            raise UsageError(
                "`gradient_accumulation_steps` must be 1 for a language model, "
                "which remembers the rows of a batch.",
                field="gradient_accumulation_steps",
            )
        longest = model_config.max_length
        if longest is not None and config.data.segment_length > longest:
            raise UsageError(
                "`segment_length` must be at most the model's longest segment, "
                f"{longest}. Received: {config.data.segment_length}.",
                field="segment_length",
            )
        text = read_text(config.data.text_file)
        vocabulary = text_vocabulary(text)
        self.model_config = model_config.replace(vocabulary=vocabulary)
        self.training, self.validation = (
            TextSegments(
                text_part(text, part),
                vocabulary,
                config.data.batch_size,
                config.data.segment_length,
            )
            for part in ("train", "validation")
        )
        self.fingerprints = {"the text": text_fingerprint(text)}

    @staticmethod
    def make_trainer(model_config, config):
        """Makes a new model and its `Trainer`, not compiled.

        The model has a memory for every row of a batch.
        """
        model = TransformerXL(
            model_config, config.data.batch_size, dtype=config.run.precision
        )
        return language_model_trainer(
            model, global_clipnorm=config.optimizer.global_clipnorm
        )

    def evaluate(self, trainer):
        """Evaluates a compiled `Trainer` on the validation's text."""
        results = evaluate_segments(trainer, self.validation)
        return {f"val_{name}": value for name, value in results.items()}

    @staticmethod
    def score(metrics):
        """The geometric mean of the right symbols' probabilities."""
        return 2.0 ** -metrics["val_bits_per_character"]


def language_model_trainer(model, **kwargs):
    """Makes the trainer of a `TransformerXL` that keeps its memory.

    Its batches are those of `TextSegments`, of as many streams as the model's
    `batch_size`. The keyword arguments are those of `Trainer`.
    """
    return Trainer(
        model,
        loss_and_metrics,
        metrics=("loss", "bits_per_character", "token_accuracy"),
        counts=("tokens",),
        pad_id=None,
        **kwargs,
    )


def loss_and_metrics(model, batch, training=False):
    """Computes the loss and the metrics of a batch of segments.

    Like `tpt_keras.training.step.loss_and_metrics`, with token ids as inputs.
    """
    inputs, targets, weights = batch
    logits = model(inputs, training=training)
    loss, metrics = token_metrics(logits, targets, weights)
    total, weight = metrics["loss"]
    return loss, {
        **metrics,
        "bits_per_character": (total / math.log(2.0), weight),
        "tokens": weight,
    }


def evaluate_segments(trainer, segments):
    """Evaluates a model on a text, starting with an empty memory.

    The model's own memory is restored afterwards.
    """
    memory = keras.tree.flatten(trainer.model.memory)
    kept = [ops.convert_to_numpy(variable) for variable in memory]
    trainer.model.reset_memory()
    try:
        return trainer.evaluate_batches(segments)
    finally:
        for variable, values in zip(memory, kept):
            variable.assign(values)


def evaluate_text(model, text, splits, batch_size, segment_length):
    """Evaluates a model on parts of a text.

    Every symbol is predicted from equally many earlier ones, as far as the
    memory reaches.

    Args:
        model: A `TransformerXL`.
        text: uint8 array.
        splits: Names of parts, see `text_part`.
        batch_size: Number of streams.
        segment_length: Symbols in a segment.

    Returns:
        List of dicts: `split`, `symbols` (their number) and the results of
        `evaluate_segments`.
    """
    reader = TransformerXL(
        model.config.replace(same_length=model.config.memory_length > 0),
        batch_size,
        dtype=model.dtype_policy,
    )
    for new, old in zip(reader.trainable_weights, model.trainable_weights):
        new.assign(old)
    trainer = language_model_trainer(reader)
    trainer.compile(jit_compile=False)
    rows = []
    for split in splits:
        segments = TextSegments(
            text_part(text, split),
            model.config.vocabulary,
            batch_size,
            segment_length,
        )
        results = evaluate_segments(trainer, segments)
        symbols = len(segments) * segments.length
        rows.append({"split": split, "symbols": symbols, **results})
    return rows

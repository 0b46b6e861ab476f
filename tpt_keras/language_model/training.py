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
from tpt_keras.training.evaluate import evaluate_batches
from tpt_keras.training.trainer import Trainer

# No symbol of a text is padding.
NO_PADDING = -1


class LanguageModelTrainer(Trainer):
    """Trains and evaluates a `TransformerXL` that keeps its memory.

    Its batches are those of `TextSegments`, with as many streams. The memory
    is kept from one batch to the next. An evaluation starts with an empty one
    and restores the training's.

    Args:
        transformer: A `TransformerXL` with a `batch_size`.
        **kwargs: See `Trainer`.

    Raises:
        UsageError: If `gradient_accumulation_steps` is more than one.

    Example:

    ```python
    trainer = LanguageModelTrainer(model)
    trainer.compile(optimizer="adam", jit_compile=False)
    trainer.fit(trainer.feed(segments), steps_per_epoch=100, epochs=10)
    ```
    """

    EVALUATED = ("loss", "bits_per_character", "token_accuracy")

    def __init__(self, transformer, **kwargs):
        super().__init__(transformer, NO_PADDING, **kwargs)
        if self.gradient_accumulation_steps > 1:
            raise UsageError(
                "A language model remembers the rows of a batch, so that a "
                "batch cannot be split: leave out "
                "`gradient_accumulation_steps`.",
                field="gradient_accumulation_steps",
            )

    def evaluate(self, *args, **kwargs):
        memory = keras.tree.flatten(self.transformer.memory)
        kept = [ops.convert_to_numpy(variable) for variable in memory]
        self.transformer.reset_memory()
        try:
            return super().evaluate(*args, **kwargs)
        finally:
            for variable, values in zip(memory, kept):
                variable.assign(values)

    def _in_few_shapes(self, batch, rows):
        return batch  # all have one shape

    def get_metrics_result(self):
        results = super().get_metrics_result()
        bits = results["loss"] / math.log(2.0)
        return {**results, "bits_per_character": bits}


class TextTask:
    """The task of a `TransformerXL`: to predict a text.

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
    trainer_class = LanguageModelTrainer
    # A row's memory belongs to its stream.
    runs_on_replicas = False

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
    def make_model(model_config, config):
        """Builds a new model to train.

        Args:
            model_config: A `TransformerXLConfig`.
            config: A `TrainingConfig`.

        Returns:
            A `TransformerXL` with a memory for every row of a batch.
        """
        return TransformerXL(
            model_config, config.data.batch_size, dtype=config.run.precision
        )

    def evaluate(self, trainer, examples):
        """Evaluates on the validation's text.

        Args:
            trainer: A compiled `LanguageModelTrainer`.
            examples: Ignored.

        Returns:
            Dict of metrics, see `MetricsLog`.
        """
        results = evaluate_batches(trainer, self.validation)
        return {f"val_{name}": value for name, value in results.items()}

    def score(self, metrics):
        """The geometric mean of the right symbols' probabilities."""
        return 2.0 ** -metrics["val_bits_per_character"]

    def describe_batch(self, data_step):
        """Describes a training batch for an error message."""
        epoch, segment = divmod(data_step, self.training.steps_per_epoch)
        return f"segment {segment} of every stream, epoch {epoch}"

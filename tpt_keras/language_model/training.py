import hashlib
import math

import keras
import numpy as np
from keras import ops

from tpt_keras.errors import UsageError
from tpt_keras.language_model.config import TransformerXLConfig
from tpt_keras.language_model.text import TextSegments
from tpt_keras.language_model.text import read_text
from tpt_keras.language_model.text import text_part
from tpt_keras.language_model.text import text_vocabulary
from tpt_keras.language_model.transformer_xl import TransformerXL
from tpt_keras.training.evaluate import evaluate_batches
from tpt_keras.training.trainer import Trainer

# Every symbol of a text counts.
NO_PADDING = -1


class LanguageModelTrainer(Trainer):
    """Trains and evaluates a `TransformerXL` that keeps its memory.

    Its batches are those of `TextSegments`, of as many streams. What is read
    in a training stays in the model's memory from one batch to the next; an
    evaluation has one of its own, empty at first.

    Args:
        transformer: A `TransformerXL` with a `batch_size`.
        **kwargs: See `Trainer`, which can cut no batch here: a stream's memory
            belongs to its row.

    Raises:
        UsageError: If batches shall be cut.

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
                "gradient_accumulation_steps cut a batch, whose rows a "
                "language model remembers. Leave them out."
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
        return batch  # they have one shape already

    def get_metrics_result(self):
        results = super().get_metrics_result()
        bits = results["loss"] / math.log(2.0)
        return {**results, "bits_per_character": bits}


# Bytes, all over the text, that its fingerprint is made of.
_FINGERPRINTED = 2**16


class TextTask:
    """To read on in a text: what a `TransformerXL` is trained for.

    Args:
        model_config: A `TransformerXLConfig`; its vocabulary becomes the
            text's.
        config: A `TrainingConfig` with a `text_file`.

    Attributes:
        model_config: The configuration of the model to train.
        training: The training's `TextSegments`.
        validation: The validation's.
        fingerprints: Dict of what tells whether the text is still the same.

    Raises:
        UsageError: If there is no such file, it is too short, or a segment is
            longer than the model takes.
    """

    model_classes = (TransformerXL,)
    trainer_class = LanguageModelTrainer
    # A row's memory belongs to its stream.
    runs_on_replicas = False

    def __init__(self, model_config, config):
        if not isinstance(model_config, TransformerXLConfig):
            raise UsageError(
                "`text_file` is for a language model, such as "
                "transformer_xl_base. Any other model learns `modules`."
            )
        if not config.data.text_file:
            raise UsageError(
                "A language model learns a text: `text_file` is missing."
            )
        longest = model_config.max_length
        if longest is not None and config.data.segment_length > longest:
            raise UsageError(
                f"This model takes segments of at most {longest} symbols: "
                f"--segment_length={longest}. Received: "
                f"{config.data.segment_length}."
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
        places = np.linspace(0, len(text) - 1, _FINGERPRINTED, dtype=int)
        content = text[places].tobytes() + str(len(text)).encode()
        self.fingerprints = {
            "the text": hashlib.sha256(content).hexdigest()[:16]
        }

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
        """The metrics of an evaluation; see `MetricsLog`.

        Args:
            trainer: A compiled `LanguageModelTrainer`.
            examples: Ignored: a text has no problems.

        Returns:
            Dict of floats.
        """
        results = evaluate_batches(trainer, self.validation)
        return {f"val_{name}": value for name, value in results.items()}

    def score(self, metrics):
        """How good an evaluation's metrics are; more is better.

        Returns:
            The geometric mean of the probabilities of the right symbols.
        """
        return 2.0 ** -metrics["val_bits_per_character"]

    def describe_batch(self, data_step):
        """What there is to say about a training batch."""
        epoch, segment = divmod(data_step, self.training.steps_per_epoch)
        return f"segment {segment} of every stream, epoch {epoch}"

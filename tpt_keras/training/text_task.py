import hashlib
import pathlib

import numpy as np

from tpt_keras.data_generators.text_segments import TextSegments
from tpt_keras.data_generators.text_segments import text_vocabulary
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names
from tpt_keras.training.evaluate import evaluate_batches

# What is validation, and what is test, of so many bytes: as of enwik8, whose
# last 5 million, and the 5 before, of 100 are these.
ONE_OF = 20
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

    def __init__(self, model_config, config):
        longest = model_config.max_length
        if longest is not None and config.segment_length > longest:
            raise UsageError(
                f"This model takes segments of at most {longest} symbols: "
                f"--segment_length={longest}. Received: "
                f"{config.segment_length}."
            )
        text = read_text(config.text_file)
        vocabulary = text_vocabulary(text)
        self.model_config = model_config.replace(vocabulary=vocabulary)
        self.training, self.validation = (
            TextSegments(
                text_part(text, part),
                vocabulary,
                config.batch_size,
                config.segment_length,
            )
            for part in ("train", "validation")
        )
        places = np.linspace(0, len(text) - 1, _FINGERPRINTED, dtype=int)
        content = text[places].tobytes() + str(len(text)).encode()
        self.fingerprints = {
            "the text": hashlib.sha256(content).hexdigest()[:16]
        }

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


def read_text(path):
    """A text file's bytes, which are not held in memory.

    Args:
        path: The file.

    Returns:
        uint8 array.

    Raises:
        UsageError: If there is no such file, or nothing in it.
    """
    path = pathlib.Path(path)
    if not path.is_file() or not path.stat().st_size:
        raise UsageError(f"There is no text in --text_file={path}.")
    return np.memmap(path, np.uint8, mode="r")


def text_part(text, name):
    """A part of a text: nine tenths, and a twentieth twice.

    Args:
        text: uint8 array.
        name: `"train"`, `"validation"` or `"test"`, which follow in the text.

    Returns:
        uint8 array.

    Raises:
        UsageError: If there is no such part.
    """
    test = len(text) - len(text) // ONE_OF
    validation = test - len(text) // ONE_OF
    parts = {
        "train": text[:validation],
        "validation": text[validation:test],
        "test": text[test:],
    }
    check_names("split", [name], parts)
    return parts[name]

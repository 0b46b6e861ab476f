"""Texts in batches of segments, and the training of a model on them."""

import hashlib
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from tpt_keras.data_generators.batches import NumberedBatches
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.language_model.config import TransformerXLConfig
from tpt_keras.language_model.transformer_xl import TransformerXL
from tpt_keras.models.weights import copy_weights
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.learner import Learner
from tpt_keras.training.step import token_metrics
from tpt_keras.training.trainer import Trainer
from tpt_keras.typing import StrPath

NUM_BYTES = 256
# The validation and the test part are each one of so many parts of a text, as
# of enwik8: the last 5 of 100 million bytes and the 5 million before them.
ONE_OF = 20
# Bytes in a text's fingerprint.
_FINGERPRINTED = 2**16


class TextSegments(NumberedBatches):
    """Batches of segments of a text, for a model with a memory.

    Every row of a batch is a stream, and each batch continues where the last
    one ended. The streams start at equal distances and continue into one
    another, the last into the first, so that the memory is right in every
    epoch. An epoch predicts every symbol but the first once; symbols that fill
    no segment are left to the next epoch.

    A batch is a pair of token ids and the next token ids, int32 arrays
    `(batch, length)`.

    Args:
        text: Bytes or a uint8 array, which may be a `np.memmap`.
        vocabulary: The known bytes, each at its token id; see
            `text_vocabulary`.
        batch_size: Number of streams.
        length: Symbols in a segment.

    Raises:
        UsageError: If the text is too short for one segment of every stream,
            or has a byte that is not in the vocabulary.

    Example:

    >>> segments = TextSegments(b"abcabcabc", b"abc", batch_size=2, length=2)
    >>> segments.steps_per_epoch
    2
    >>> [ids.tolist() for ids in next(segments.iterate())]
    [[[0, 1], [1, 2]], [[1, 2], [2, 0]]]
    """

    def __init__(
        self,
        text: bytes | np.ndarray,
        vocabulary: Sequence[int],
        batch_size: int,
        length: int,
    ) -> None:
        if isinstance(text, bytes):
            text = np.frombuffer(text, np.uint8)
        # The first symbol is not predicted.
        self._stream_length = (len(text) - 1) // batch_size
        if self._stream_length < length:
            raise UsageError(
                f"{batch_size} streams in segments of {length} need a text of "
                f"at least {batch_size * length + 1} bytes. Received: "
                f"{len(text)}. Lower `batch_size` or `segment_length`.",
                field="batch_size",
            )
        self.batch_size = batch_size
        self.length = length
        self._text = text
        self._token_ids = np.full(NUM_BYTES, -1, np.int32)
        self._token_ids[list(vocabulary)] = np.arange(len(vocabulary))
        unknown = set(text_vocabulary(text)) - set(vocabulary)
        if unknown:
            raise UsageError(
                f"The text has bytes that are not in the model's vocabulary: "
                f"{bytes(sorted(unknown))!r}.",
                field="text_file",
            )

    def __len__(self):
        """Number of segments in an epoch."""
        return self.batch_size * self.steps_per_epoch

    @property
    def steps_per_epoch(self) -> int:
        return self._stream_length // self.length

    @property
    def signature(self) -> Any:
        import tensorflow as tf

        token_ids = tf.TensorSpec((self.batch_size, self.length), tf.int32)
        return token_ids, token_ids

    def _parts(self, shards, num_shards):
        if num_shards > 1:
            raise UsageError(
                "A text is read by one device: leave out `distribution`.",
                field="distribution",
            )
        firsts = np.arange(self.batch_size) * self._stream_length

        def part(step):
            positions = firsts + step * self.length
            positions = positions[:, None] + np.arange(self.length)
            positions %= self.batch_size * self._stream_length
            return (
                self._token_ids[self._text[positions]],
                self._token_ids[self._text[positions + 1]],
            )

        return part


def text_vocabulary(text: bytes | np.ndarray) -> tuple[int, ...]:
    """Returns the different bytes of a text, in ascending order.

    Example:

    >>> text_vocabulary(b"cabba")
    (97, 98, 99)
    """
    if isinstance(text, bytes):
        text = np.frombuffer(text, np.uint8)
    found = np.zeros(NUM_BYTES, bool)
    # In parts, because indexing copies.
    for start in range(0, len(text), 2**24):
        found[text[start : start + 2**24]] = True
    return tuple(np.flatnonzero(found).tolist())


def text_fingerprint(text: np.ndarray) -> str:
    """Returns a short hash of a text's length and of bytes all over it."""
    positions = np.linspace(0, len(text) - 1, _FINGERPRINTED, dtype=int)
    content = text[positions].tobytes() + str(len(text)).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def read_text(path: StrPath) -> np.ndarray:
    """Opens a text file as a uint8 array, without reading it into memory."""
    path = pathlib.Path(path)
    if not path.is_file() or not path.stat().st_size:
        reason = "is empty" if path.exists() else "does not exist"
        raise UsageError(
            f"The `text_file` {str(path)!r} {reason}.",
            field="text_file",
            path=path,
        )
    return np.memmap(path, np.uint8, mode="r")


def text_part(text: np.ndarray, name: str) -> np.ndarray:
    """Returns `"train"`, nine tenths of a text, `"validation"` or `"test"`."""
    test = len(text) - len(text) // ONE_OF
    validation = test - len(text) // ONE_OF
    parts = {
        "train": text[:validation],
        "validation": text[validation:test],
        "test": text[test:],
    }
    check_choice("split", name, parts)
    return parts[name]


class TextLearner(Learner):
    """Lets `train` learn a `text_file`, whose bytes are the vocabulary.

    Raises:
        UsageError: If the file is missing or too short, or if a segment is
            longer than the model accepts.
    """

    model_classes = (TransformerXL,)
    # A row's memory belongs to its stream.
    learns_on_replicas = False
    validated_by = None

    def __init__(
        self, model_config: TransformerXLConfig, config: TrainingConfig
    ) -> None:
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
        """Makes a model with a memory for every row, and its `Trainer`."""
        model = TransformerXL(
            model_config, config.data.batch_size, dtype=config.run.precision
        )
        return language_model_trainer(
            model, global_clipnorm=config.optimizer.global_clipnorm
        )

    def evaluate(self, trainer: Trainer) -> dict[str, float]:
        results = evaluate_segments(trainer, self.validation)
        return {f"val_{name}": value for name, value in results.items()}

    @staticmethod
    def score(metrics: dict[str, float]) -> float:
        """The geometric mean of the right symbols' probabilities."""
        return 2.0 ** -metrics["val_bits_per_character"]


def language_model_trainer(model: TransformerXL, **kwargs: Any) -> Trainer:
    """Makes the `Trainer` of a `TransformerXL` that keeps its memory.

    It learns `TextSegments` of as many streams as the model's `batch_size`.
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
    """Evaluates a model on a text, with an empty memory at its start."""
    memory = keras.tree.flatten(trainer.model.memory)
    kept = [ops.convert_to_numpy(variable) for variable in memory]
    trainer.model.reset_memory()
    try:
        return trainer.evaluate_batches(segments)
    finally:
        for variable, values in zip(memory, kept):
            variable.assign(values)


def evaluate_text(
    model: TransformerXL,
    text: np.ndarray,
    splits: Sequence[str],
    batch_size: int,
    segment_length: int,
) -> list[dict[str, Any]]:
    """Evaluates a model on parts of a text.

    The model predicts every symbol from the same number of earlier symbols,
    up to the length of its memory.

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
    copy_weights(model, reader)
    trainer = language_model_trainer(reader)
    trainer.compile(jit_compile=False)
    rows = []
    for split in splits:
        part, vocabulary = text_part(text, split), model.config.vocabulary
        segments = TextSegments(part, vocabulary, batch_size, segment_length)
        results = evaluate_segments(trainer, segments)
        symbols = len(segments) * segments.length
        rows.append({"split": split, "symbols": symbols, **results})
    return rows

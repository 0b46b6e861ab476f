"""Texts: their parts, their bytes as token ids, and batches of segments."""

import hashlib
import pathlib

import numpy as np

from tpt_keras.data_generators.batches import NumberedBatches
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice

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
    epoch. An epoch predicts every symbol once, except for the first one and
    for a rest that fills no segment; the next epoch reads that.

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

    def __init__(self, text, vocabulary, batch_size, length):
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
    def steps_per_epoch(self):
        return self._stream_length // self.length

    @property
    def signature(self):
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
            places = firsts + step * self.length
            places = places[:, None] + np.arange(self.length)
            places %= self.batch_size * self._stream_length
            return (
                self._token_ids[self._text[places]],
                self._token_ids[self._text[places + 1]],
            )

        return part


def text_vocabulary(text):
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


def text_fingerprint(text):
    """Returns a short hash of a text's length and of bytes all over it."""
    places = np.linspace(0, len(text) - 1, _FINGERPRINTED, dtype=int)
    content = text[places].tobytes() + str(len(text)).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def read_text(path):
    """Opens a text file as a uint8 array, without reading it into memory."""
    path = pathlib.Path(path)
    if not path.is_file() or not path.stat().st_size:
        raise UsageError(
            f"There is no text in the `text_file` {str(path)!r}.",
            field="text_file",
            path=path,
        )
    return np.memmap(path, np.uint8, mode="r")


def text_part(text, name):
    """Returns a part of a text.

    The parts are `"train"` (the first nine tenths), `"validation"` and
    `"test"` (a twentieth each).
    """
    test = len(text) - len(text) // ONE_OF
    validation = test - len(text) // ONE_OF
    parts = {
        "train": text[:validation],
        "validation": text[validation:test],
        "test": text[test:],
    }
    check_choice("split", name, parts)
    return parts[name]

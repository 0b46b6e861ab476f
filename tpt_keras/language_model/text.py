import pathlib

import numpy as np

from tpt_keras.data_generators.numbered_batches import NumberedBatches
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names

NUM_BYTES = 256
# The validation and the test part are each one of so many parts of a text, as
# of enwik8: the last 5 of 100 million bytes and the 5 million before them.
ONE_OF = 20


class TextSegments(NumberedBatches):
    """A text in segments, for a model that remembers what it read.

    Every row of a batch reads a stream of its own: the next batch goes on
    where this one ended. The streams start at equal distances and each reads
    on into the one behind it, the last into the first, so that what a model
    remembers is right from one epoch to the next. An epoch is over when every
    symbol but the text's first was to be predicted once; what does not fill
    the last segment is read in the epoch after.

    A batch is a pair of token ids and the token ids that follow each, int32
    arrays `(batch, length)`.

    Args:
        text: Bytes, or a uint8 array of them, such as a `np.memmap`.
        vocabulary: The bytes there are, each at its token id; see
            `text_vocabulary`.
        batch_size: Number of streams.
        length: Symbols in a segment.

    Raises:
        UsageError: If the text is too short for one segment of every stream,
            or holds a byte that is not in the vocabulary.

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
                f"{len(text)}."
            )
        self.batch_size = batch_size
        self.length = length
        self._text = text
        self._token_ids = np.full(NUM_BYTES, -1, np.int32)
        self._token_ids[list(vocabulary)] = np.arange(len(vocabulary))
        unknown = set(text_vocabulary(text)) - set(vocabulary)
        if unknown:
            raise UsageError(
                f"The text holds {bytes(sorted(unknown))!r}, which the "
                "model's vocabulary does not."
            )

    def __len__(self):
        """Number of segments of an epoch."""
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
                "A text is read by one device: leave out --distribution."
            )
        firsts = np.arange(self.batch_size) * self._stream_length

        def part(step):
            places = firsts + step * self.length
            places = places[:, None] + np.arange(self.length)
            # As far as it is a multiple of the streams' length.
            places %= self.batch_size * self._stream_length
            return (
                self._token_ids[self._text[places]],
                self._token_ids[self._text[places + 1]],
            )

        return part


def text_vocabulary(text):
    """The bytes of a text.

    Args:
        text: Bytes, or a uint8 array of them.

    Returns:
        Tuple of integers, in ascending order.

    Example:

    >>> text_vocabulary(b"cabba")
    (97, 98, 99)
    """
    if isinstance(text, bytes):
        text = np.frombuffer(text, np.uint8)
    found = np.zeros(NUM_BYTES, bool)
    # In parts, for indexing makes a copy.
    for start in range(0, len(text), 2**24):
        found[text[start : start + 2**24]] = True
    return tuple(np.flatnonzero(found).tolist())


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

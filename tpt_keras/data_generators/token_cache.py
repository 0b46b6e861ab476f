"""Token cache: the examples of a dataset in one memory-mapped file.

The file holds the token ids of all examples, the offsets where each sequence
starts, a checksum of every block of these, and a JSON footer:

    tokens   uint8, or wider where the vocabulary needs it
    offsets  int64, source and target in turn
    crcs     uint32, one for every block of tokens and offsets
    footer   JSON: sizes, vocabulary, splits, the files it was made from
    length and checksum of the footer and the checksums, two int64

The footer and the checksums are verified when the file is opened, every other
block when it is read for the first time.
"""

import array
import contextlib
import errno
import functools
import hashlib
import itertools
import json
import logging
import pathlib
import tempfile
import zlib

import filelock
import numpy as np

from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.examples import token_dtype
from tpt_keras.errors import UsageError
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

NAME = "examples.tokens"
_FORMAT = 1
_BLOCK = 4096
_TAIL = 16
# Examples that are tokenized at once.
_CHUNK = 8192
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)

logger = logging.getLogger(__name__)


class TokenCache:
    """The examples of a dataset's splits, by random access.

    Args:
        tokens: Array of all tokens.
        offsets: Array of the places where sequences start, and of the end.
        vocabulary: The symbols, each at its token id.
        counts: Dict of the splits' names to their numbers of examples.
    """

    def __init__(self, tokens, offsets, vocabulary, counts):
        self._arrays = (tokens, offsets, tuple(vocabulary))
        self.counts = counts

    def examples(self, splits):
        """The examples of splits that follow one another in the cache.

        Args:
            splits: Names of splits. One that the dataset lacks is skipped.

        Returns:
            An `ArrayExamples`, which may be empty.
        """
        first, found = None, 0
        place = 0
        for split, count in self.counts.items():
            if split in splits:
                first = place if first is None else first
                found += count
                if place + count != first + found:
                    raise ValueError(f"{splits} do not follow one another.")
            place += count
        return ArrayExamples(*self._arrays, first or 0, (first or 0) + found)


def open_cache(folder, vocabulary, read_splits):
    """Opens a dataset's token cache and makes it first if necessary.

    It is made, under a lock, if it is missing or damaged, or if a file of the
    dataset has changed. Where the folder cannot be written, the cache lies in
    a temporary folder until the process ends.

    Args:
        folder: The dataset's folder.
        vocabulary: The symbols, each at its token id.
        read_splits: Function without arguments that returns a dict of the
            splits' names to iterables of pairs of strings. It is called only
            if the cache has to be made.

    Returns:
        A `TokenCache`.

    Raises:
        UsageError: If a character is not in the vocabulary.
    """
    folder = pathlib.Path(folder)
    key = [list(vocabulary), _files(folder)]
    try:
        return _open_or_make(folder / NAME, key, read_splits)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    path = pathlib.Path(_temporary_folder().name) / f"{name}-{NAME}"
    return _open_or_make(path, key, read_splits)


def _files(folder):
    """Names, sizes and times of the files that a cache is made from."""
    paths = sorted((*folder.glob("*.tfrecord*"), *folder.glob("*.json")))
    status = [(path.name, path.stat()) for path in paths]
    return [[name, each.st_size, each.st_mtime_ns] for name, each in status]


@functools.cache
def _temporary_folder():
    return tempfile.TemporaryDirectory(prefix="tpt_keras_tokens_")


def _open_or_make(path, key, read_splits):
    cache = _open(path, key)
    if cache is None:
        with filelock.FileLock(path.with_name(f".{path.name}.lock")):
            # Another process may have made it meanwhile.
            cache = _open(path, key)
            if cache is None:
                remove_partial(path)
                logger.debug("Making the token cache %s.", path)
                _write(path, key, read_splits())
                cache = _open(path, key)
    return cache


def _write(path, key, splits):
    vocabulary, _ = key
    tokenizer = CharacterTokenizer(vocabulary)
    dtype = token_dtype(vocabulary)
    offsets = array.array("q", [0])
    counts = {}
    with whole_file(path) as partial, partial.open("wb") as raw:
        file = _ChecksummedFile(raw)
        for split, pairs in splits.items():
            before = len(offsets)
            texts = itertools.chain.from_iterable(pairs)
            while chunk := list(itertools.islice(texts, 2 * _CHUNK)):
                tokens = tokenizer.encode_flat(chunk).astype(dtype)
                file.write(tokens.tobytes())
                ends = np.cumsum(list(map(len, chunk))) + offsets[-1]
                offsets.frombytes(ends.astype("int64").tobytes())
            counts[split] = (len(offsets) - before) // 2
        # So that the offsets are aligned.
        file.write(bytes(-offsets[-1] * dtype.itemsize % 8))
        file.write(offsets.tobytes())
        footer = {"format": _FORMAT, "key": key, "counts": counts}
        end = file.checksums() + json.dumps(footer).encode()
        raw.write(end)
        raw.write(np.array([len(end), zlib.crc32(end)], "<i8").tobytes())


class _ChecksummedFile:
    """Writes to a file and keeps a checksum of every block."""

    def __init__(self, file):
        self._file = file
        self._rest = b""
        self._checksums = array.array("I")

    def write(self, data):
        self._file.write(data)
        data = self._rest + data
        whole = len(data) - len(data) % _BLOCK
        self._add(data[:whole])
        self._rest = data[whole:]

    def checksums(self):
        self._add(self._rest)
        return self._checksums.tobytes()

    def _add(self, data):
        for start in range(0, len(data), _BLOCK):
            self._checksums.append(zlib.crc32(data[start : start + _BLOCK]))


def _open(path, key):
    """The cache of a file that is whole and has this key, or `None`."""
    try:
        data = np.memmap(path, np.uint8, "r")
        size, checksum = data[-_TAIL:].view("<i8").tolist()
    except (FileNotFoundError, ValueError):  # the latter of a file too short
        return None
    if not 0 < size <= len(data) - _TAIL:
        return None
    data, end = data[: -_TAIL - size], data[-_TAIL - size : -_TAIL].tobytes()
    if zlib.crc32(end) != checksum:
        return None
    blocks = -(-len(data) // _BLOCK)
    footer = json.loads(end[4 * blocks :])
    if (footer["format"], footer["key"]) != (_FORMAT, key):
        return None
    vocabulary, _ = key
    num_offsets = 2 * sum(footer["counts"].values()) + 1
    content = _Content(path, data, np.frombuffer(end, "<u4", blocks))
    return TokenCache(
        _CheckedArray(content, token_dtype(vocabulary)),
        _CheckedArray(content, "<i8", len(data) // 8 - num_offsets),
        vocabulary,
        footer["counts"],
    )


class _Content:
    """The blocks of a cache's file, verified once each."""

    def __init__(self, path, data, checksums):
        self.data = data
        self._path = path
        self._checksums = checksums
        self._verified = np.zeros(len(checksums), bool)

    def verify(self, blocks):
        unknown = np.unique(blocks[~self._verified[blocks]])
        for block in unknown.tolist():
            found = self.data[block * _BLOCK : (block + 1) * _BLOCK]
            if zlib.crc32(found) != self._checksums[block]:
                # The next start makes it anew.
                with contextlib.suppress(OSError):
                    self._path.unlink()
                raise UsageError(
                    f"The token cache {self._path} was damaged and has been "
                    "removed. Start again: it is then made anew."
                )
        self._verified[unknown] = True


class _CheckedArray:
    """A part of a cache's file as an array that is verified as it is read."""

    def __init__(self, content, dtype, first=0):
        self.dtype = np.dtype(dtype)
        self._content = content
        self._first = first
        size = len(content.data) - len(content.data) % self.dtype.itemsize
        self._array = content.data[:size].view(self.dtype)

    def __getitem__(self, indices):
        indices = indices + self._first
        self._content.verify(indices * self.dtype.itemsize // _BLOCK)
        return np.asarray(self._array[indices])

"""Token cache: a dataset's examples as memory-mapped arrays in files.

A folder beside the dataset holds the token ids of all examples (`tokens.npy`),
the places where the sequences start (`offsets.npy`), and a JSON file with the
dataset's identity, the splits' sizes and a digest of all this.
"""

import errno
import functools
import hashlib
import json
import logging
import pathlib
import shutil
import tempfile
import zlib

import numpy as np

from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.errors import UnreadableFileError
from tpt_keras.files import folder_lock
from tpt_keras.files import named_in_errors
from tpt_keras.files import reading
from tpt_keras.files import whole_folder

NAME = "tokens"
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)

logger = logging.getLogger(__name__)


def open_cache(folder, vocabulary, read_splits):
    """Opens a dataset's token cache and makes it first if necessary.

    It is made, under a lock, if it is missing or damaged, or if a file of the
    dataset has changed. Where the folder cannot be written, the cache lies in
    a temporary folder until the process ends.

    Args:
        folder: The dataset's folder.
        vocabulary: The symbols, each at its token id.
        read_splits: Function that returns a dict of the splits' names to
            iterables of pairs of strings, to make the cache from.

    Returns:
        Dict of the splits' names to `ArrayExamples`.
    """
    folder = pathlib.Path(folder)
    key = {"vocabulary": list(vocabulary), "files": _files(folder)}
    try:
        return _open_or_make(folder / NAME, key, read_splits)
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    path = pathlib.Path(_temporary_folder().name, name, NAME)
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
    try:
        return _open(path, key)
    except UnreadableFileError:
        pass
    with folder_lock(path.parent, "makes the token cache", wait=True):
        try:
            # Another process may have made it meanwhile.
            return _open(path, key)
        except UnreadableFileError as error:
            logger.debug("Making the token cache: %s", error)
        shutil.rmtree(path, ignore_errors=True)
        with whole_folder(path) as partial:
            partial.mkdir()
            _write(partial, key, read_splits())
        return _open(path, key)


def _write(folder, key, splits):
    counts = dict.fromkeys(splits, 0)

    def pairs():
        for split, of_split in splits.items():
            for pair in of_split:
                counts[split] += 1
                yield pair

    examples = ArrayExamples.from_texts(pairs(), key["vocabulary"])
    arrays = {"tokens": examples.tokens, "offsets": examples.offsets}
    for name, array in arrays.items():
        path = folder / f"{name}.npy"
        with named_in_errors(path), path.open("wb") as file:
            # `np.save` would not tell that the disk is full.
            header = np.lib.format.header_data_from_array_1_0(array)
            np.lib.format.write_array_header_1_0(file, header)
            file.write(array.data)
    record = {"key": key, "counts": counts}
    record["digest"] = _digest(record, arrays.values())
    (folder / "cache.json").write_text(json.dumps(record))


def _open(path, key):
    with reading(path):
        record = json.loads((path / "cache.json").read_bytes())
        # As plain arrays, because indexing a `np.memmap` takes longer.
        tokens, offsets = (
            np.asarray(np.load(path / f"{name}.npy", mmap_mode="r"))
            for name in ("tokens", "offsets")
        )
        digest = record.pop("digest")
        if digest != _digest(record, (tokens, offsets)):
            raise ValueError("it is damaged")
        if record["key"] != key:
            raise ValueError("the dataset has changed")
    splits, start = {}, 0
    for split, count in record["counts"].items():
        part = offsets[2 * start : 2 * (start + count) + 1]
        splits[split] = ArrayExamples(tokens, part, key["vocabulary"])
        start += count
    return splits


def _digest(record, arrays):
    digest = zlib.crc32(json.dumps(record).encode())
    for array in arrays:
        digest = zlib.crc32(f"{array.dtype}{array.shape}".encode(), digest)
        digest = zlib.crc32(array, digest)
    return digest

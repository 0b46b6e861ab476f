"""Token cache: a dataset's examples as memory-mapped arrays in files.

A folder beside the dataset holds the token ids of all examples (`tokens.npy`),
their lengths (`lengths.npy`), and a JSON file with the files of the dataset,
its origin, the sizes of its splits and a digest of all this.
"""

import contextlib
import json
import logging
import pathlib
import shutil
import zlib

import numpy as np

from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.errors import UnreadableFileError
from tpt_keras.files import folder_lock
from tpt_keras.files import named_in_errors
from tpt_keras.files import reading
from tpt_keras.files import whole_folder

NAME = "tokens"
_ADVICE = "Remove the folder and prepare the dataset again."

logger = logging.getLogger(__name__)


def open_cache(folder, vocabulary, read_dataset):
    """Opens a dataset's token cache.

    A cache that is missing, damaged or older than the dataset is made, under a
    lock. A folder without a dataset's records has to hold a whole cache.

    Args:
        folder: The dataset's folder.
        vocabulary: The symbols, each at its token id.
        read_dataset: Function that returns the arguments `splits` and `origin`
            of `write_cache`, to make the cache from.

    Returns:
        Dict of the splits' names to `ArrayExamples`, and the origin.

    Raises:
        UnreadableFileError: If there are no records, and the cache is damaged.
    """
    folder = pathlib.Path(folder)
    path = folder / NAME
    key = {"vocabulary": list(vocabulary), "files": _files(folder)}
    if not key["files"]:
        return _open(path, key, _ADVICE)
    with contextlib.suppress(UnreadableFileError):
        return _open(path, key)
    with folder_lock(folder, "makes the token cache", wait=True):
        try:
            # Another process may have made it meanwhile.
            return _open(path, key)
        except UnreadableFileError as error:
            logger.debug("Making the token cache: %s", error)
        _write(path, key, *read_dataset())
        return _open(path, key)


def write_cache(folder, vocabulary, splits, origin):
    """Writes the token cache of a dataset that has no records.

    One of the same origin, which another process has just written, stays.
    `splits` is a dict of iterables of pairs of strings. `origin` is a dict of
    the dataset's settings.
    """
    key = {"vocabulary": list(vocabulary), "files": []}
    with folder_lock(folder, "makes the token cache"):
        with contextlib.suppress(UnreadableFileError):
            if _open(folder / NAME, key)[1] == origin:
                return
        _write(folder / NAME, key, splits, origin)


def _files(folder):
    """Names, sizes and times of the files that a cache is made from."""
    records = sorted(folder.glob("*.tfrecord*"))
    paths = records and sorted((*records, *folder.glob("*.json")))
    status = [(path.name, path.stat()) for path in paths]
    return [[name, each.st_size, each.st_mtime_ns] for name, each in status]


def _write(path, key, splits, origin):
    counts = dict.fromkeys(splits, 0)

    def pairs():
        for split, split_pairs in splits.items():
            for pair in split_pairs:
                counts[split] += 1
                yield pair

    shutil.rmtree(path, ignore_errors=True)
    with whole_folder(path) as partial:
        partial.mkdir()
        examples = ArrayExamples.from_texts(pairs(), key["vocabulary"])
        arrays = {"tokens": examples.tokens, "lengths": examples.all_lengths}
        for name, array in arrays.items():
            file_path = partial / f"{name}.npy"
            with named_in_errors(file_path), file_path.open("wb") as file:
                # `np.save` would not tell that the disk is full.
                header = np.lib.format.header_data_from_array_1_0(array)
                np.lib.format.write_array_header_1_0(file, header)
                file.write(array.data)
        record = {"key": key, "origin": origin, "counts": counts}
        record["digest"] = _digest(record, arrays.values())
        (partial / "cache.json").write_text(json.dumps(record))


def _open(path, key, advice=""):
    with reading(path, advice):
        record = json.loads((path / "cache.json").read_bytes())
        # As plain arrays, because indexing a `np.memmap` takes longer.
        tokens, lengths = (
            np.asarray(np.load(path / f"{name}.npy", mmap_mode="r"))
            for name in ("tokens", "lengths")
        )
        digest = record.pop("digest")
        if digest != _digest(record, (tokens, lengths)):
            raise ValueError("it is damaged")
        # Where there are no records, the cache is of whatever it was made from.
        if (key["files"] or record["key"]["files"]) != record["key"]["files"]:
            raise ValueError("the dataset has changed")
        if key["vocabulary"] != record["key"]["vocabulary"]:
            raise ValueError("it has another vocabulary")
    splits, example, token = {}, 0, 0
    for split, count in record["counts"].items():
        part = lengths[example : example + count]
        end = token + int(part.sum(dtype="int64"))
        splits[split] = ArrayExamples(
            tokens[token:end], part, key["vocabulary"]
        )
        example, token = example + count, end
    return splits, record["origin"]


def _digest(record, arrays):
    digest = zlib.crc32(json.dumps(record).encode())
    for array in arrays:
        digest = zlib.crc32(f"{array.dtype}{array.shape}".encode(), digest)
        digest = zlib.crc32(array, digest)
    return digest

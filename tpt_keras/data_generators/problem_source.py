import array
import os
import pathlib

import numpy as np
import tensorflow as tf

from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file

_TFRECORD_HEADER = 12  # bytes before a record: its length and a checksum
_FEATURES = {
    "question": tf.io.FixedLenFeature([], tf.string),
    "answer": tf.io.FixedLenFeature([], tf.string),
}


class ProblemSource:
    """Random access to problems that TensorFlow Datasets prepared.

    TFRecord files are read in order by nature. Where each record starts is
    found out once and kept beside the file, and records are then read from any
    place: a shuffle over the whole dataset needs neither a buffer nor a second
    copy of the data.

    Args:
        paths: TFRecord files of examples with the string features `question`
            and `answer`.

    Example:

    ```python
    builder = tfds.builder("math_dataset/numbers__place_value")
    source = ProblemSource(builder.info.splits["train"].filepaths)
    questions, answers = source.read([0, 100, 7])
    ```
    """

    def __init__(self, paths):
        self._paths = [os.fspath(path) for path in paths]
        self._offsets = [_record_offsets(path) for path in self._paths]
        lengths = [len(offsets) - 1 for offsets in self._offsets]
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        self._files = {}

    def __len__(self):
        return int(self._starts[-1])

    def read(self, indices):
        """Reads problems from any place.

        Args:
            indices: Integer array `(count,)`.

        Returns:
            Arrays of bytes `(count,)`: the questions and the answers.
        """
        indices = np.asarray(indices)
        file_indices = np.searchsorted(self._starts, indices, "right") - 1
        records = []
        for index, file_index in zip(indices, file_indices):
            offsets = self._offsets[file_index]
            row = index - self._starts[file_index]
            start, stop = int(offsets[row]), int(offsets[row + 1])
            # A record is framed by a header and a checksum of four bytes.
            records.append(
                os.pread(
                    self._file(file_index),
                    stop - start - _TFRECORD_HEADER - 4,
                    start + _TFRECORD_HEADER,
                )
            )
        problems = tf.io.parse_example(records, _FEATURES)
        return problems["question"].numpy(), problems["answer"].numpy()

    def _file(self, file_index):
        if file_index not in self._files:
            self._files[file_index] = os.open(
                self._paths[file_index], os.O_RDONLY
            )
        return self._files[file_index]


def _record_offsets(path):
    """Offsets `(records + 1,)` of a TFRecord file's records, and its size."""
    index_path = pathlib.Path(f"{path}.offsets.npy")
    size = os.path.getsize(path)
    if index_path.exists():
        try:
            offsets = np.load(index_path)
        except (ValueError, EOFError):
            offsets = []  # damaged
        if len(offsets) and offsets[-1] == size:
            return offsets
    offsets = _scan_offsets(path, size)
    if offsets[-1] != size:
        raise UsageError(
            f"The file {path} of a prepared dataset is cut off. Remove its "
            "folder, and make the dataset again with python -m "
            "experiments.prepare_data."
        )
    try:
        with whole_file(index_path) as partial:
            np.save(partial, offsets)
    except OSError:
        pass  # a folder that cannot be written: found out anew next time
    return offsets


def _scan_offsets(path, size):
    offsets = array.array("q", [0])
    # Read in pieces, not mapped: a mapped file would count as memory.
    with open(path, "rb", buffering=1 << 20) as file:
        while offsets[-1] < size:
            length = int.from_bytes(file.read(8), "little")
            offsets.append(offsets[-1] + _TFRECORD_HEADER + length + 4)
            file.seek(length + 8, os.SEEK_CUR)
    return np.array(offsets, dtype="int64")

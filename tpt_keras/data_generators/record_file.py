import array
import functools
import os
import pathlib

import google_crc32c
import numpy as np

from tpt_keras.errors import UsageError
from tpt_keras.errors import command
from tpt_keras.files import whole_file

# A record is framed by its length and a checksum of that before it, and a
# checksum of the record behind it.
_HEADER = 12  # bytes
_FOOTER = 4


class RecordFile:
    """Random access to the records of a TFRecord file, each one checked.

    TFRecord files are read in order by nature. Where each record starts is
    found out once and kept beside the file, and records are then read from any
    place. The file is open only while it is read.

    Args:
        path: The file.

    Raises:
        UsageError: If the file is damaged.
    """

    def __init__(self, path):
        self.path = os.fspath(path)
        self._offsets = self._kept_offsets()

    def __len__(self):
        return len(self._offsets) - 1

    def read(self, rows):
        """Reads records.

        Args:
            rows: Integer array `(count,)`.

        Returns:
            List of bytes.

        Raises:
            UsageError: If one is not what was written.
        """
        starts = self._offsets[rows]
        sizes = self._offsets[rows + 1] - starts
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            frames = [
                _read_at(descriptor, size, start)
                for size, start in zip(sizes.tolist(), starts.tolist())
            ]
        finally:
            os.close(descriptor)
        records = [frame[_HEADER:-_FOOTER] for frame in frames]
        found = [frame[:_HEADER] + frame[-_FOOTER:] for frame in frames]
        expected = [
            header + checksum
            for header, checksum in zip(
                map(_header, (sizes - _HEADER - _FOOTER).tolist()),
                _checksums(records),
            )
        ]
        if found != expected:
            for row, there, wanted in zip(rows, found, expected):
                if there != wanted:
                    raise self._damaged(row)
        return records

    def _damaged(self, row):
        return self._error(f"Record {row} of the file {self.path} is damaged.")

    def _error(self, what):
        return UsageError(
            f"{what} Remove the folder {os.path.dirname(self.path)} and make "
            f"the dataset again with {command('prepare_data')}."
        )

    def _kept_offsets(self):
        """Offsets `(records + 1,)` of the records, and the file's size."""
        index_path = pathlib.Path(f"{self.path}.offsets.npy")
        status = os.stat(self.path)
        try:
            with open(index_path, "rb") as file:
                offsets, stamp = np.split(np.lib.format.read_array(file), [-3])
        except Exception:  # not there, or damaged in whichever way
            offsets = stamp = np.zeros(0, "int64")
        if np.array_equal(stamp, _stamp(offsets, status)):
            return offsets
        offsets = self._scan(status.st_size)
        try:
            with whole_file(index_path) as partial:
                stamp = _stamp(offsets, status)
                np.save(partial, np.concatenate([offsets, stamp]))
        except OSError:
            pass  # a folder that cannot be written: found out anew next time
        return offsets

    def _scan(self, size):
        offsets = array.array("q", [0])
        # Read in pieces, not mapped: a mapped file would count as memory.
        with open(self.path, "rb", buffering=1 << 20) as file:
            while offsets[-1] < size:
                header = file.read(_HEADER)
                length = int.from_bytes(header[:8], "little")
                if len(header) == _HEADER and header != _header(length):
                    raise self._damaged(len(offsets) - 1)
                end = offsets[-1] + _HEADER + length + _FOOTER
                if end > size:
                    raise self._error(f"The file {self.path} is cut off.")
                offsets.append(end)
                file.seek(end)
        return np.array(offsets, dtype="int64")


def _read_at(descriptor, size, offset):
    """Reads so many bytes, or fewer where the file ends."""
    data = os.pread(descriptor, size, offset)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def _stamp(offsets, status):
    """What tells that offsets are whole, and this very file's."""
    checksum = google_crc32c.value(offsets.tobytes())
    return np.array([status.st_size, status.st_mtime_ns, checksum], "int64")


@functools.lru_cache(maxsize=4096)
def _header(length):
    """The bytes before a record of a length."""
    data = length.to_bytes(8, "little")
    return data + b"".join(_checksums([data]))


def _checksums(records):
    """TFRecord's checksums of records: rotated CRC32Cs, plus a constant."""
    crcs = np.fromiter(
        map(google_crc32c.value, records), "uint32", len(records)
    )
    masked = (crcs >> 15 | crcs << 17) + np.uint32(0xA282EAD8)
    return masked.astype("<u4").view("V4").tolist()

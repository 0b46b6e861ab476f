import errno
import os
import re
import resource

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tpt_keras.data_generators import record_file
from tpt_keras.data_generators.record_file import RecordFile
from tpt_keras.errors import UsageError

# Of many lengths, one of them empty, one that ends with zeros.
RECORDS = [b"x" * (index % 13) + b"%d" % index for index in range(20)]
RECORDS += [b"", b"zeros\0\0", bytes(range(256)) * 40]


def write(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    return path


def index_of(path):
    return path.with_name(f"{path.name}.offsets.npy")


def read_all(path):
    file = RecordFile(path)
    return file.read(np.arange(len(file)))


@pytest.fixture
def path(tmp_path):
    """A file of `RECORDS`."""
    return write(tmp_path / "a.tfrecord", RECORDS)


def test_records_from_any_place(path):
    file = RecordFile(path)
    assert len(file) == len(RECORDS)
    assert read_all(path) == RECORDS
    rows = [20, 0, 22, 22, 21, 7]
    assert file.read(np.array(rows)) == [RECORDS[row] for row in rows]
    assert file.read(np.array([], "int64")) == []


def test_no_records(tmp_path):
    assert read_all(write(tmp_path / "none", [])) == []


def test_a_read_that_gives_less_than_was_asked(path, monkeypatch):
    """As network disks may, and reads that a signal interrupts."""
    pread = os.pread
    monkeypatch.setattr(
        os, "pread", lambda file, size, at: pread(file, min(size, 5), at)
    )
    assert read_all(path) == RECORDS


def test_the_limit_of_open_files(path):
    """More files than may be open, all of them in use."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 5
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        files = [RecordFile(path) for _ in range(few)]
        for _ in range(2):
            for file in files:
                assert file.read(np.array([3])) == RECORDS[3:4]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_the_index_is_kept(path, monkeypatch):
    assert read_all(path) == RECORDS
    assert sorted(path.parent.iterdir()) == [path, index_of(path)]
    monkeypatch.setattr(RecordFile, "_scan", None)
    assert read_all(path) == RECORDS


@pytest.mark.parametrize(
    "damage",
    [
        lambda index: index.unlink(),
        lambda index: index.write_bytes(b""),
        lambda index: index.write_bytes(index.read_bytes()[:-30]),
        lambda index: index.write_bytes(b"no array at all"),
        lambda index: index.write_bytes(b"PK\3\4 no archive"),
        lambda index: np.save(index, np.array([], "int64")),
        lambda index: np.save(index, np.array([0, 5], "int64")),
        lambda index: np.save(index, np.array(7)),
        lambda index: np.save(index, np.zeros((3, 3), "int64")),
    ],
)
def test_a_damaged_index_is_made_anew(path, damage):
    RecordFile(path)
    whole = index_of(path).read_bytes()
    damage(index_of(path))
    assert read_all(path) == RECORDS
    assert index_of(path).read_bytes() == whole


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_a_flipped_bit_of_the_index(path, data):
    RecordFile(path)
    whole = index_of(path).read_bytes()
    place = data.draw(st.integers(0, 8 * len(whole) - 1))
    flip(index_of(path), place)
    assert read_all(path) == RECORDS


def test_the_index_of_an_older_version(path):
    """Offsets and the size, of whatever file was there."""
    RecordFile(path)
    size = path.stat().st_size
    np.save(index_of(path), np.array([0, 20, 50, size], "int64"))
    assert read_all(path) == RECORDS


def test_a_stale_index_is_made_anew(path):
    RecordFile(path)
    # Longer, shorter, and of the same size as what was there before.
    for lengths in ([9, 3, 3], [5], [3, 9, 3], [3, 3, 9]):
        records = [b"y" * length for length in lengths]
        write(path, records)
        assert read_all(path) == records


def test_other_records_of_the_same_size_and_time(path):
    """Copied with their times, say: never read as what they are not."""
    write(path, [b"yyyyyyyyy", b"yyy", b"yyy"])
    before = path.stat()
    file = RecordFile(path)
    write(path, [b"zzz", b"zzzzzzzzz", b"zzz"])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for stale in (file, RecordFile(path)):
        with pytest.raises(UsageError, match=r"Record 0 .* is damaged"):
            stale.read(np.array([0]))
        assert stale.read(np.array([2])) == [b"zzz"]


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_folder_that_cannot_be_written(path, monkeypatch, number):
    def refuse(file, offsets):
        raise OSError(number, os.strerror(number), str(file))

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", refuse)
        assert read_all(path) == RECORDS
    assert not index_of(path).exists()
    assert read_all(path) == RECORDS
    assert index_of(path).exists()


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("lost", [1, 4, 5, 40, 10_255])
def test_a_file_that_is_cut_off(path, lost, is_indexed):
    if is_indexed:
        RecordFile(path)
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(UsageError) as error:
        RecordFile(path)
    assert f"The file {path} is cut off." in str(error.value)
    assert f"Remove the folder {path.parent} " in str(error.value)
    assert "tpt_keras prepare_data" in str(error.value)


@pytest.mark.parametrize("content", [b"no records at all", b"\xff" * 50, b"x"])
def test_a_file_of_something_else(path, content):
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"is damaged|is cut off"):
        RecordFile(path)


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_a_flipped_bit(path, data):
    """Wherever it is: nothing is read that was not written."""
    write(path, RECORDS)
    file = RecordFile(path)
    flip(path, data.draw(st.integers(0, 8 * path.stat().st_size - 1)))
    with pytest.raises(UsageError, match="is damaged") as error:
        file.read(np.arange(len(file)))
    assert "\n" not in str(error.value)
    # And where the offsets are found out anew.
    with pytest.raises(UsageError, match=r"is damaged|is cut off"):
        read_all(path)
    # All others are what they were.
    (damaged,) = re.findall(r"Record (\d+) of", str(error.value))
    rows = np.delete(np.arange(len(file)), int(damaged))
    assert file.read(rows) == [RECORDS[row] for row in rows]


def test_a_file_that_shrinks_while_it_is_read(path):
    file = RecordFile(path)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(UsageError, match=r"Record 22 .* is damaged"):
        file.read(np.array([3, 22]))
    path.write_bytes(b"")
    with pytest.raises(UsageError, match=r"Record 3 .* is damaged"):
        file.read(np.array([3]))


def test_checksums_are_those_of_tensorflow(path):
    data = path.read_bytes()
    assert data[:12] == record_file._header(len(RECORDS[0]))
    assert (
        data[12 + len(RECORDS[0]) :][:4]
        == record_file._checksums(RECORDS[:1])[0]
    )

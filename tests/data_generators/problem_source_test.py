import concurrent.futures
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.data_generators.files import MODULES
from tests.data_generators.files import as_strings
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.problem_source import ProblemSource
from tpt_keras.errors import UsageError


def problems(count, first=0):
    return [
        (f"question {i} {'x' * (i % 13)}", str(i))
        for i in range(first, first + count)
    ]


def write_records(path, pairs):
    def feature(text):
        return tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[text.encode()])
        )

    with tf.io.TFRecordWriter(str(path)) as writer:
        for question, answer in pairs:
            features = {
                "question": feature(question),
                "answer": feature(answer),
            }
            writer.write(
                tf.train.Example(
                    features=tf.train.Features(feature=features)
                ).SerializeToString()
            )
    return path


def read_all(source):
    return as_strings(source.read(np.arange(len(source))))


def test_the_order_is_that_of_tfds(data_dir):
    builder = tfds.builder(
        f"mathematics_dataset/{MODULES[0]}", data_dir=data_dir
    )
    for split in SPLITS:
        expected = [
            (example["question"].decode(), example["answer"].decode())
            for example in tfds.as_numpy(
                builder.as_dataset(split=split, shuffle_files=False)
            )
        ]
        source = ProblemSource(builder.info.splits[split].filepaths)
        assert len(source) == len(expected) > 90
        assert read_all(source) == expected
        some = np.random.default_rng(0).integers(0, len(expected), 50)
        assert as_strings(source.read(some)) == [expected[i] for i in some]


def test_several_files_one_of_them_empty(tmp_path):
    paths = [
        write_records(tmp_path / f"{first}", problems(count, first))
        for first, count in ((0, 7), (7, 0), (8, 1), (9, 12))
    ]
    source = ProblemSource(paths)
    expected = problems(7) + problems(13, first=8)
    assert len(source) == 20
    assert read_all(source) == expected
    some = [19, 0, 7, 7, 6, 8]
    assert as_strings(source.read(some)) == [expected[i] for i in some]
    assert len(ProblemSource([])) == len(ProblemSource(paths[1:2])) == 0


def test_no_file_stays_open(tmp_path):
    path = write_records(tmp_path / "a.tfrecord", problems(5))
    source = ProblemSource([path])
    before = os.listdir("/proc/self/fd")
    sources = [ProblemSource([path, path]) for _ in range(20)]
    for each in (source, *sources):
        each.read([3, 1])
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError):
        source.read([0, 4])
    assert os.listdir("/proc/self/fd") == before


def test_several_threads_share_a_source(tmp_path):
    pairs = problems(300)
    source = ProblemSource(
        [
            write_records(tmp_path / f"{first}", pairs[first : first + 100])
            for first in (0, 100, 200)
        ]
    )

    def read(seed):
        some = np.random.default_rng(seed).integers(0, 300, 50)
        return as_strings(source.read(some)) == [pairs[i] for i in some]

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(80)))


def test_a_damaged_record_is_never_read(tmp_path):
    path = write_records(
        tmp_path / "a.tfrecord",
        [("1 + 1", "2"), ("2 + 2", "4"), ("3 + 3", "6")],
    )
    source = ProblemSource([path])
    path.write_bytes(path.read_bytes().replace(b"2 + 2", b"9 + 2"))
    for damaged in (source, ProblemSource([path])):
        assert as_strings(damaged.read([2, 0])) == [
            ("3 + 3", "6"),
            ("1 + 1", "2"),
        ]
        with pytest.raises(UsageError, match=f"Record 1 of .* {path} is dam"):
            damaged.read([0, 2, 1])

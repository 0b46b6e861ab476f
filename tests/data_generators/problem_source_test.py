import errno
import os

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from tests.data_generators.files import MODULES
from tests.data_generators.files import as_strings
from tpt_keras.data_generators import problem_source
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


def index_of(path):
    return path.with_name(f"{path.name}.offsets.npy")


def read_all(source):
    return as_strings(source.read(np.arange(len(source))))


@pytest.fixture
def path(tmp_path):
    """A file of 20 problems."""
    return write_records(tmp_path / "a.tfrecord", problems(20))


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


def test_the_index_is_kept(path, monkeypatch):
    assert read_all(ProblemSource([path])) == problems(20)
    assert index_of(path).exists()
    assert len(list(path.parent.iterdir())) == 2
    monkeypatch.setattr(problem_source, "_scan_offsets", None)
    assert read_all(ProblemSource([path])) == problems(20)


@pytest.mark.parametrize(
    "damage",
    [
        lambda index: index.unlink(),
        lambda index: index.write_bytes(b""),
        lambda index: index.write_bytes(index.read_bytes()[:-30]),
        lambda index: index.write_bytes(b"no array at all"),
        lambda index: np.save(index, np.array([], "int64")),
        lambda index: np.save(index, np.array([0, 5], "int64")),
    ],
)
def test_a_damaged_index_is_made_anew(path, damage):
    ProblemSource([path])
    whole = index_of(path).read_bytes()
    damage(index_of(path))
    assert read_all(ProblemSource([path])) == problems(20)
    assert index_of(path).read_bytes() == whole


def test_a_stale_index_is_made_anew(path):
    ProblemSource([path])
    write_records(path, problems(25))
    assert read_all(ProblemSource([path])) == problems(25)
    write_records(path, problems(3))
    assert read_all(ProblemSource([path])) == problems(3)


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_folder_that_cannot_be_written(path, monkeypatch, number):
    def refuse(file, offsets):
        raise OSError(number, os.strerror(number), str(file))

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", refuse)
        assert read_all(ProblemSource([path])) == problems(20)
    assert not index_of(path).exists()
    assert read_all(ProblemSource([path])) == problems(20)
    assert index_of(path).exists()


@pytest.mark.parametrize("lost", [1, 4, 5, 40, 60])
def test_a_file_that_is_cut_off(path, lost):
    ProblemSource([path])
    path.write_bytes(path.read_bytes()[:-lost])
    with pytest.raises(UsageError) as error:
        ProblemSource([path])
    assert f"{path} of a prepared dataset is cut off" in str(error.value)
    assert "prepare_data" in str(error.value)

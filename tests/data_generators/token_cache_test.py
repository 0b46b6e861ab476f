import concurrent.futures
import errno
import os
import time

import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.data_generators.files import all_texts
from tests.data_generators.files import tree
from tests.refusals import refused
from tpt_keras.data_generators.token_cache import NAME
from tpt_keras.data_generators.token_cache import open_cache
from tpt_keras.data_generators.token_cache import write_cache
from tpt_keras.errors import UnreadableFileError
from tpt_keras.files import LOCK_FILE
from tpt_keras.files import folder_lock
from tpt_keras.tokenizers.character_tokenizer import MATHEMATICS_VOCABULARY

SPLITS = {
    "easy": [(f"What is {n} + {n}?", str(n + n)) for n in range(300)],
    "hard": [("Is this hard?" + "!" * n, "True") for n in range(99)],
    "test": [("", "1"), ("1", "")],
}
ORIGIN = {"generated": {"seed": 3}}


class Dataset:
    """A folder with a dataset of `SPLITS`; counts how often it is read."""

    def __init__(self, folder):
        self.folder = folder
        self.reads = 0
        self.splits = dict(SPLITS)
        (folder / "a.tfrecord-00000-of-00001").write_bytes(b"records")
        (folder / "dataset_info.json").write_text("{}")

    def open(self, vocabulary=MATHEMATICS_VOCABULARY):
        splits, origin = open_cache(self.folder, vocabulary, self._read)
        assert origin == ORIGIN
        return splits

    def _read(self):
        self.reads += 1
        splits = {split: iter(pairs) for split, pairs in self.splits.items()}
        return splits, ORIGIN

    def remove_records(self):
        for path in self.folder.glob("*.*"):
            if path.name != LOCK_FILE:
                path.unlink()


@pytest.fixture
def dataset(tmp_path):
    return Dataset(tmp_path)


def assert_whole(cache, splits=SPLITS):
    for split, pairs in splits.items():
        assert all_texts(cache[split]) == pairs


def test_cache_is_made_once(dataset):
    for _ in range(3):
        assert_whole(dataset.open())
    assert dataset.reads == 1


def test_many_examples_span_chunks(dataset):
    dataset.splits = {"train": [(f"{n:040d}", str(n)) for n in range(20_000)]}
    assert_whole(dataset.open(), dataset.splits)


def test_large_vocabulary_takes_wider_tokens(dataset):
    characters = tuple(map(chr, range(0x4E00, 0x4E00 + 300)))
    dataset.splits = {
        "train": [("".join(characters), "\u4e00"), ("", "\u4e01")]
    }
    vocabulary = ("<pad>", "<start>", "<end>", *characters)
    for _ in range(2):
        assert_whole(dataset.open(vocabulary), dataset.splits)
    assert dataset.reads == 1


@pytest.mark.parametrize(
    "name", ["a.tfrecord-00000-of-00001", "dataset_info.json"]
)
def test_changed_dataset_is_read_again(dataset, name):
    dataset.open()
    path = dataset.folder / name
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(1, 1))
    dataset.splits["test"] = [("new", "1")]
    assert_whole(dataset.open(), dataset.splits)
    assert dataset.reads == 2


def test_another_vocabulary_is_another_cache(dataset):
    dataset.open()
    assert_whole(dataset.open(MATHEMATICS_VOCABULARY[::-1]))
    assert dataset.reads == 2


def test_copied_folder_keeps_its_cache(dataset, tmp_path_factory):
    dataset.open()
    folder = tmp_path_factory.mktemp("other") / "link"
    folder.symlink_to(dataset.folder, target_is_directory=True)
    dataset.folder = folder
    assert_whole(dataset.open())
    assert dataset.reads == 1


@pytest.mark.parametrize("writes", [False, True])
def test_cache_alone_is_a_dataset(dataset, tmp_path_factory, writes):
    dataset.open()
    arrays = tree(dataset.folder)
    dataset.remove_records()
    if writes:
        dataset.folder = tmp_path_factory.mktemp("other")
        write_cache(dataset.folder, MATHEMATICS_VOCABULARY, SPLITS, ORIGIN)
        for path, content in tree(dataset.folder).items():
            assert content == arrays[path] or path.endswith(".json")
    assert_whole(dataset.open())
    assert dataset.reads == 1
    with pytest.raises(UnreadableFileError):
        dataset.open(MATHEMATICS_VOCABULARY[::-1])
    assert_whole(dataset.open())


@pytest.mark.parametrize("name", ["cache.json", "lengths.npy", "tokens.npy"])
def test_damage_of_a_cache_alone_is_refused(dataset, name):
    dataset.open()
    dataset.remove_records()
    path = dataset.folder / NAME / name
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(2):
        with refused(path=path.parent, error=UnreadableFileError):
            dataset.open()


def test_failed_write_leaves_no_cache(dataset):
    def fail():
        yield "1 + 1", "2"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    dataset.splits = {"train": fail()}
    with pytest.raises(OSError, match="No space left"):
        dataset.open()
    assert not (dataset.folder / NAME).exists()
    dataset.splits = SPLITS
    assert_whole(dataset.open())


@settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_cache_is_made_again(dataset, data):
    dataset.open()
    paths = sorted((dataset.folder / NAME).iterdir())
    assert len(paths) == 3
    path = data.draw(st.sampled_from(paths))
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    path.write_bytes(content)
    assert_whole(dataset.open())


def test_no_file_stays_open(dataset):
    dataset.open()
    before = len(os.listdir("/proc/self/fd"))
    caches = [dataset.open() for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before + 10
    del caches
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_cache_is_made_by_one_at_a_time(dataset):
    """Another thread, like another process, waits for it."""
    with concurrent.futures.ThreadPoolExecutor() as threads:
        with folder_lock(dataset.folder, "tests"):
            caches = [threads.submit(dataset.open) for _ in range(2)]
            time.sleep(0.3)  # Both find none.
        for cache in caches:
            assert_whole(cache.result())
    assert dataset.reads == 1

import errno
import os
import pathlib
import shutil
import tarfile
import tempfile

import keras
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.data_generators.files import tree
from tests.refusals import refused
from tpt_keras.data_generators.mathematics import archive as archive_module
from tpt_keras.data_generators.mathematics.archive import FOLDER
from tpt_keras.data_generators.mathematics.archive import SPLITS
from tpt_keras.data_generators.mathematics.archive import fetch_official_text
from tpt_keras.data_generators.mathematics.archive import read_problems
from tpt_keras.data_generators.mathematics.archive import text_path
from tpt_keras.data_generators.mathematics.archive import write_problems
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.files import LOCK_FILE
from tpt_keras.files import folder_lock
from tpt_keras.tokenizers.character_tokenizer import CHARACTERS

MODULE = "numbers__place_value"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder of small text files of two modules."""
    root = tmp_path_factory.mktemp("small") / FOLDER
    for module in (MODULE, "numbers__is_prime"):
        for split in SPLITS:
            if path := text_path(root, split, module):
                problems = [(f"Is {n} prime ({split})?", "1") for n in range(9)]
                write_problems(path, problems)
    return root


@pytest.fixture(scope="module")
def archives(texts, tmp_path_factory):
    """The files as archives, the released one's form first."""
    paths = []
    for suffix, name in (("gz", FOLDER), ("xz", f"./{FOLDER}")):
        paths.append(tmp_path_factory.mktemp("archive") / f"a.tar.{suffix}")
        with tarfile.open(paths[-1], f"w:{suffix}") as tar:
            tar.add(texts, arcname=name)
    return paths


@pytest.fixture(scope="module")
def archive(archives):
    return archives[0]


def of_module(texts, module=MODULE):
    return {p: text for p, text in tree(texts).items() if module in p}


def check_refused(data_dir, archive, modules=(MODULE,)):
    """The error; nothing is unpacked."""
    with pytest.raises(UsageError) as error:
        fetch_official_text(data_dir, modules, archive)
    official = data_dir / "official"
    assert set(tree(official)) <= {LOCK_FILE}
    return error.value


def test_archive_is_unpacked(archives, texts, tmp_path):
    for number, archive in enumerate(archives):
        data_dir = tmp_path / str(number)
        folder = fetch_official_text(str(data_dir), [MODULE], str(archive))
        assert folder == data_dir / "official"
        # Only what was asked for.
        assert tree(folder / FOLDER) == of_module(texts)


def test_more_modules_are_unpacked_later(archive, texts, tmp_path):
    left = tmp_path / "official" / "partial" / FOLDER / "of_a_killed_process"
    left.mkdir(parents=True)
    folder = fetch_official_text(tmp_path, [MODULE], archive)
    first = {path: path.stat().st_mtime_ns for path in folder.rglob("*.txt")}
    assert len(first) == 5
    both = [MODULE, "numbers__is_prime"]
    assert fetch_official_text(tmp_path, both, archive) == folder
    assert tree(folder / FOLDER) == tree(texts)
    assert first == {path: path.stat().st_mtime_ns for path in first}
    # With all there, the archive is not read again.
    wrong = tmp_path / "wrong.tar.gz"
    wrong.write_bytes(b"")
    assert fetch_official_text(tmp_path, both, wrong) == folder
    assert set(tree(folder)) == {
        LOCK_FILE,
        *(f"{FOLDER}/{path}" for path in tree(texts)),
    }


def test_unpacked_folder_is_taken(texts, tmp_path):
    official = tmp_path / "official"
    with refused(part=str(official / FOLDER)):
        fetch_official_text(tmp_path, [MODULE], texts.parent)
    official.mkdir()
    (official / FOLDER).symlink_to(texts)
    # Nothing is downloaded.
    assert fetch_official_text(tmp_path, [MODULE]) == official


def test_what_is_no_archive_is_refused(archive, tmp_path):
    path = tmp_path / "wrong.tar.gz"
    for content in (b"", b"<html>Not found</html>", b"\x1f\x8b\x08no"):
        path.write_bytes(content)
        error = check_refused(tmp_path / "data", path)
        assert isinstance(error, UnreadableFileError)
        assert error.path == str(path)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(__file__, arcname=f"interpolate/{MODULE}.txt")
    assert check_refused(tmp_path / "data", path).path == str(path)
    error = check_refused(tmp_path / "data", archive, [MODULE, "numbers__gcd"])
    assert "numbers__gcd.txt" in str(error)


@settings(max_examples=60)
@given(st.data())
def test_damaged_archive_is_whole_or_refused(archive, texts, data):
    content = bytearray(archive.read_bytes())
    place = st.integers(0, len(content) - 1)
    for where in data.draw(st.lists(place, max_size=3, unique=True)):
        content[where] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del content[data.draw(place) :]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path = folder / "a.tar.gz"
        path.write_bytes(content)
        fault = None
        try:
            unpacked = fetch_official_text(folder / "data", [MODULE], path)
        except UsageError as error:
            fault = error
        if fault is None:
            assert tree(unpacked / FOLDER) == of_module(texts)
        else:
            assert fault.path == str(path)
            assert not list((folder / "data").rglob("*.txt"))


def test_full_disk_is_not_taken_for_damage(archive, tmp_path, monkeypatch):
    def copyfileobj(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", copyfileobj)
    with pytest.raises(OSError, match="No space left"):
        fetch_official_text(tmp_path, [MODULE], archive)
    assert not (tmp_path / "official" / "partial").exists()


def test_one_process_unpacks(archive, tmp_path):
    with folder_lock(tmp_path / "official", "tests"):
        assert check_refused(tmp_path, archive).path == str(
            tmp_path / "official"
        )


def test_archive_is_downloaded(archive, texts, tmp_path, monkeypatch):
    asked = []

    def get_file(name, origin, **kwargs):
        asked.append((name, origin, kwargs))
        return str(archive)

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    monkeypatch.setattr(keras.config, "disable_interactive_logging", list)
    folder = fetch_official_text(tmp_path, [MODULE])
    assert tree(folder / FOLDER) == of_module(texts)
    ((name, origin, kwargs),) = asked
    assert name == "mathematics_dataset-v1.0.tar.gz"
    assert origin == archive_module.URL
    assert kwargs["cache_dir"] == tmp_path
    assert kwargs["file_hash"] == archive_module.SHA256


TEXT = st.text(CHARACTERS, min_size=1, max_size=40)
GOOD = b"What is 1 + 1?\n2\nWhat is 2 - 3?\n-1\n"


@pytest.fixture
def path(tmp_path):
    """A file of the official layout."""
    file = tmp_path / "train-easy" / "numbers__gcd.txt"
    file.parent.mkdir()
    return file


def read(path, data):
    path.write_bytes(data)
    return list(read_problems(path))


@settings(max_examples=20)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1))
def test_problems_are_read_as_written(problems):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "new" / "module.txt"
        write_problems(path, problems)
        assert list(read_problems(path)) == problems
        assert list(path.parent.iterdir()) == [path]


def test_line_ends_of_another_system_are_read(path):
    assert read(path, GOOD.replace(b"\n", b"\r\n")) == read(path, GOOD)


def test_damaged_text_file_is_refused(path):
    whole = GOOD.splitlines(keepends=True)
    damaged = {GOOD[:cut] for cut in range(len(GOOD))}
    damaged.remove(b"".join(whole[:2]))
    for line in range(4):
        for part in (b"\n", b"1%\n", b"1\t\n", b"\x00\n", b"\xe9\n"):
            damaged.add(b"".join([*whole[:line], part, *whole[line + 1 :]]))
    for content in damaged:
        with refused(path=path, error=UnreadableFileError):
            read(path, content)
    path.unlink()
    with pytest.raises(UnreadableFileError):
        list(read_problems(path))


def test_paths_of_the_official_layout():
    paths = [str(text_path("root", split, MODULE)) for split in SPLITS]
    assert paths == [
        "root/train-easy/numbers__place_value.txt",
        "root/train-medium/numbers__place_value.txt",
        "root/train-hard/numbers__place_value.txt",
        "root/interpolate/numbers__place_value.txt",
        "root/extrapolate/numbers__place_value_big.txt",
    ]
    assert text_path("root", "extrapolate", "numbers__gcd") is None

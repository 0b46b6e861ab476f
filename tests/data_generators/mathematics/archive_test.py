import errno
import hashlib
import io
import os
import pathlib
import random
import shutil
import tarfile
import tempfile

import keras
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data_generators.files import MODULES
from tests.data_generators.files import tree
from tpt_keras.data_generators.mathematics import archive as archive_module
from tpt_keras.data_generators.mathematics.archive import FOLDER
from tpt_keras.data_generators.mathematics.archive import fetch_official_text
from tpt_keras.data_generators.mathematics.archive import read_problems
from tpt_keras.data_generators.mathematics.archive import split_module
from tpt_keras.data_generators.mathematics.archive import text_path
from tpt_keras.data_generators.mathematics.archive import write_problems
from tpt_keras.data_generators.mathematics.datasets import prepare_dataset
from tpt_keras.data_generators.mathematics.modules import EXTRAPOLATION_MODULES
from tpt_keras.data_generators.mathematics.modules import MODULES as ALL
from tpt_keras.data_generators.mathematics.modules import SPLITS
from tpt_keras.errors import UsageError
from tpt_keras.files import LOCK_FILE
from tpt_keras.files import PARTIAL
from tpt_keras.files import folder_lock
from tpt_keras.tokenizers.character_tokenizer import CHARACTERS

SMALL = "numbers__is_prime"


@pytest.fixture(scope="module")
def archive(text_dir, tmp_path_factory):
    """The texts as the released archive holds them, and other modules."""
    path = tmp_path_factory.mktemp("archive") / "v1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(text_dir / FOLDER, arcname=FOLDER)
        info = tarfile.TarInfo(f"{FOLDER}/interpolate/numbers__gcd.txt")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"1\n1\n"))
    return path


def texts(folder):
    """The text files of `MODULES` without the generator's reports."""
    return {
        path: content
        for path, content in tree(folder / FOLDER).items()
        if path.endswith(".txt")
    }


def refusal(*arguments, **kwargs):
    with pytest.raises(UsageError) as error:
        fetch_official_text(*arguments, **kwargs)
    return str(error.value)


@pytest.mark.parametrize("as_text", [False, True])
def test_archive_is_unpacked(archive, text_dir, tmp_path, as_text):
    data_dir = tmp_path / "data"
    if as_text:
        data_dir, archive = str(data_dir), str(archive)
    folder = fetch_official_text(data_dir, MODULES, archive)
    assert folder == tmp_path / "data" / "official"
    assert texts(folder) == texts(text_dir)
    # Only what was asked for was unpacked.
    assert set(tree(tmp_path / "data" / "official")) == {
        LOCK_FILE,
        *(f"{FOLDER}/{path}" for path in texts(text_dir)),
    }


def test_member_names_may_start_with_a_dot(text_dir, tmp_path):
    archive = tmp_path / "again.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(
            text_dir / FOLDER,
            arcname=f"./{FOLDER}",
        )
    folder = fetch_official_text(tmp_path, MODULES, archive)
    assert texts(folder) == texts(text_dir)


def test_more_modules_are_unpacked_later(archive, text_dir, tmp_path):
    folder = fetch_official_text(tmp_path, MODULES[:1], archive)
    first = {path: path.stat().st_mtime_ns for path in folder.rglob("*.txt")}
    assert len(first) == 5
    assert fetch_official_text(tmp_path, MODULES, archive) == folder
    assert texts(folder) == texts(text_dir)
    assert first == {path: path.stat().st_mtime_ns for path in first}
    # With all there, the archive is not read again.
    wrong = tmp_path / "wrong.tar.gz"
    wrong.write_bytes(b"")
    assert fetch_official_text(tmp_path, MODULES, wrong) == folder


def test_unpacked_folder_is_taken(text_dir, tmp_path):
    for folder in (text_dir, text_dir / FOLDER):
        assert fetch_official_text(tmp_path, MODULES, str(folder)) == text_dir
    assert list(tmp_path.iterdir()) == []


def test_another_folder_is_refused(tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    message = refusal(tmp_path, MODULES, folder)
    assert repr(str(folder)) in message
    assert FOLDER in message


def test_missing_archive_is_refused(tmp_path):
    path = tmp_path / "nothing.tar.gz"
    assert str(path) in refusal(tmp_path, MODULES, path)


def test_other_file_is_refused(tmp_path):
    path = tmp_path / "wrong.tar.gz"
    for content in (b"", b"<html>Not found</html>", b"\x1f\x8b\x08no"):
        path.write_bytes(content)
        message = refusal(tmp_path / "data", MODULES, path)
        assert str(path) in message
        assert archive_module.URL in message


def without_time(member):
    """Has an archive the same length whenever it is made."""
    member.mtime = 0
    return member


@pytest.fixture(scope="module")
def small_archives(tmp_path_factory):
    """The bytes of small archives, by their suffix; the files in them."""
    folder = tmp_path_factory.mktemp("small")
    root = folder / FOLDER
    for split in SPLITS:
        if path := text_path(root, split, SMALL):
            write_problems(
                path, [(f"Is {n} prime ({split})?", "1") for n in range(40)]
            )
    archives = {}
    for suffix in ("tar", "tar.gz", "tar.bz2", "tar.xz"):
        path = folder / f"a.{suffix}"
        compression = suffix.removeprefix("tar").removeprefix(".")
        with tarfile.open(path, f"w:{compression}") as tar:
            tar.add(root, arcname=root.name, filter=without_time)
        archives[suffix] = path.read_bytes()
    return archives, tree(root)


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
@given(st.data())
def test_damaged_archive_is_whole_or_refused(small_archives, suffix, data):
    archives, expected = small_archives
    content = bytearray(archives[suffix])
    place = st.integers(0, len(content) - 1)
    for where in data.draw(st.lists(place, max_size=3, unique=True)):
        content[where] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del content[data.draw(place) :]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        path = folder / f"a.{suffix}"
        path.write_bytes(content)
        root = folder / "data" / "official" / FOLDER
        message = None
        try:
            fetch_official_text(folder / "data", [SMALL], path)
        except UsageError as error:
            message = str(error)
        unpacked = tree(root)
    if message is not None:
        assert str(path) in message
        assert unpacked == {}
    elif suffix == "tar":
        # A plain archive has checksums of its headers alone.
        assert unpacked.keys() == expected.keys()
    else:
        assert unpacked == expected


@pytest.mark.parametrize("suffix", ["tar.bz2", "tar.xz"])
@pytest.mark.parametrize("place", [0.5, 0.9])
def test_damage_after_a_whole_block_is_refused(tmp_path, suffix, place):
    # Noticed while a file is copied, not when the archive is opened.
    root = tmp_path / FOLDER
    numbers = random.Random(0)
    for split in ("train_easy", "interpolate"):
        write_problems(
            text_path(root, split, SMALL),
            [(str(numbers.getrandbits(400)), "1") for _ in range(1500)],
        )
    path = tmp_path / f"a.{suffix}"
    compression = suffix.partition(".")[2]
    level = {"compresslevel" if compression == "bz2" else "preset": 1}
    with tarfile.open(path, f"w:{compression}", **level) as tar:
        tar.add(root, arcname=root.name)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    message = refusal(tmp_path / "data", [SMALL], path)
    assert str(path) in message
    assert not list((tmp_path / "data").rglob("*.txt"))


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_every_compression_is_unpacked(small_archives, tmp_path, suffix):
    archives, expected = small_archives
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(archives[suffix])
    folder = fetch_official_text(tmp_path, [SMALL], path)
    assert tree(folder / FOLDER) == expected


def test_archive_that_lacks_a_file_is_refused(small_archives, tmp_path):
    path = tmp_path / "a.tar.xz"
    path.write_bytes(small_archives[0]["tar.xz"])
    message = refusal(tmp_path / "data", [SMALL, "numbers__gcd"], path)
    assert "/numbers__gcd.txt" in message
    assert not list(tmp_path.rglob("*.txt"))


def test_full_disk_is_not_taken_for_damage(
    small_archives, tmp_path, monkeypatch
):
    def copyfileobj(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.tar.bz2"
    path.write_bytes(small_archives[0]["tar.bz2"])
    monkeypatch.setattr(shutil, "copyfileobj", copyfileobj)
    with pytest.raises(OSError, match="No space left"):
        fetch_official_text(tmp_path / "data", [SMALL], path)


def test_one_process_unpacks(small_archives, tmp_path, monkeypatch):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(small_archives[0]["tar.gz"])
    copyfileobj, messages = shutil.copyfileobj, []

    def meanwhile(*args):
        messages.append(refusal(tmp_path, [SMALL], path))
        copyfileobj(*args)

    monkeypatch.setattr(shutil, "copyfileobj", meanwhile)
    folder = fetch_official_text(tmp_path, [SMALL], path)
    assert tree(folder / FOLDER) == small_archives[1]
    assert str(folder) in messages[0]


def test_leftovers_of_a_killed_process_are_removed(small_archives, tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(small_archives[0]["tar.gz"])
    root = tmp_path / "official" / FOLDER
    left = root / "train-easy" / f"{PARTIAL}01234567-{SMALL}.txt"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    fetch_official_text(tmp_path, [SMALL], path)
    assert tree(root) == small_archives[1]


def test_another_archive_is_refused(tmp_path):
    path = tmp_path / "other.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(__file__, arcname="interpolate/numbers__place_value.txt")
    message = refusal(tmp_path / "data", MODULES, path)
    assert archive_module.URL in message


def test_archive_is_downloaded(archive, text_dir, tmp_path, monkeypatch):
    asked = []

    def get_file(name, origin, **kwargs):
        asked.append((name, origin, kwargs))
        return str(archive)

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    folder = fetch_official_text(tmp_path, MODULES)
    assert texts(folder) == texts(text_dir)
    ((name, origin, kwargs),) = asked
    assert name == "mathematics_dataset-v1.0.tar.gz"
    assert origin == archive_module.URL
    assert kwargs["cache_dir"] == tmp_path
    assert kwargs["file_hash"] == archive_module.SHA256


def test_download_is_logged_without_a_terminal(
    archive, text_dir, tmp_path, monkeypatch, caplog, capsys
):
    monkeypatch.setattr(archive_module, "URL", archive.as_uri())
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    monkeypatch.setattr(archive_module, "SHA256", digest)
    with caplog.at_level("INFO", "tpt_keras"):
        folder = fetch_official_text(tmp_path, MODULES)
    assert texts(folder) == texts(text_dir)
    assert archive.as_uri() in caplog.text
    # Keras draws no bar.
    assert capsys.readouterr().out == ""
    assert keras.utils.is_interactive_logging_enabled()


def test_one_process_downloads(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.utils, "get_file", None)
    with folder_lock(tmp_path / "downloads", "downloads"):
        message = refusal(tmp_path, MODULES)
    assert str(tmp_path / "downloads") in message


@pytest.mark.parametrize(
    "error",
    [
        Exception("URL fetch failure on https://...: None -- [Errno -2]"),
        ValueError("Incomplete or corrupted file detected."),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
)
def test_failed_download_is_refused(tmp_path, monkeypatch, error):
    def get_file(*args, **kwargs):
        raise error

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    message = refusal(tmp_path, MODULES)
    assert archive_module.URL in message
    assert str(error) in message
    assert "`archive`" in message


def test_official_and_generated_texts_give_the_same_records(
    archive, data_dir, text_dir, tmp_path
):
    folder = fetch_official_text(tmp_path, MODULES, archive)
    for module in MODULES:
        builder = prepare_dataset(module, tmp_path, folder)
        assert dict(builder.info.metadata) == {"also_in_evaluation": 0}
    for module in MODULES:
        name = f"mathematics_dataset/{module}/1.0.0"
        ours = tree(tmp_path / name)
        theirs = tree(data_dir / name)
        records = [path for path in theirs if "tfrecord" in path]
        assert len(records) >= len(SPLITS) - 1
        for path in records:
            assert ours[path] == theirs[path]


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


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1))
def test_problems_are_read_as_written(problems):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "new" / "module.txt"
        write_problems(path, problems)
        assert list(read_problems(path)) == problems
        assert list(path.parent.iterdir()) == [path]


def test_line_ends_of_another_system_are_read(path):
    assert read(path, GOOD.replace(b"\n", b"\r\n")) == read(path, GOOD)


def test_text_file_is_written_atomically(path):
    def problems():
        yield "What is 1 + 1?", "2"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            write_problems(path, problems())
        assert not path.exists()
    write_problems(path, [("What is 1 + 1?", "2")])
    with pytest.raises(OSError, match="No space left"):
        write_problems(path, problems())
    assert path.read_text() == "What is 1 + 1?\n2\n"


@pytest.mark.parametrize("cut", range(len(GOOD)))
def test_text_file_that_is_cut_off_is_refused(path, cut):
    if GOOD[:cut] == b"What is 1 + 1?\n2\n":
        assert read(path, GOOD[:cut]) == [("What is 1 + 1?", "2")]
        return
    with pytest.raises(UsageError) as error:
        read(path, GOOD[:cut])
    assert str(path) in str(error.value)


def test_missing_text_file_is_refused(path):
    with pytest.raises(UsageError) as error:
        list(read_problems(path))
    assert "train-easy/numbers__gcd.txt" in str(error.value)


@pytest.mark.parametrize("part", [b"%", b"\t", b"\x00", b"\xe9", b"\xff", None])
@pytest.mark.parametrize("line", [1, 2, 3, 4])
def test_damaged_line_is_named(path, part, line):
    lines = GOOD.splitlines(keepends=True)
    whole = lines[line - 1]
    lines[line - 1] = b"\n" if part is None else whole[:1] + part + whole[1:]
    with pytest.raises(UsageError) as error:
        read(path, b"".join(lines))
    assert "numbers__gcd (train-easy)" in str(error.value)
    assert f"line {line}" in str(error.value)


def test_paths_of_the_official_layout():
    paths = [
        str(text_path("root", split, "numbers__place_value"))
        for split in SPLITS
    ]
    assert paths == [
        "root/train-easy/numbers__place_value.txt",
        "root/train-medium/numbers__place_value.txt",
        "root/train-hard/numbers__place_value.txt",
        "root/interpolate/numbers__place_value.txt",
        "root/extrapolate/numbers__place_value_big.txt",
    ]
    assert text_path("root", "extrapolate", "numbers__gcd") is None
    names = [split_module("extrapolate", module) for module in ALL]
    assert sorted(filter(None, names)) == sorted(EXTRAPOLATION_MODULES)

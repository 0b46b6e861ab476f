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
from tpt_keras.data_generators import official_archive
from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.official_archive import fetch_official_text
from tpt_keras.data_generators.prepared_data import prepare_dataset
from tpt_keras.errors import UsageError
from tpt_keras.files import LOCK_FILE
from tpt_keras.files import PARTIAL
from tpt_keras.files import folder_lock

SMALL = "numbers__is_prime"


@pytest.fixture(scope="module")
def archive(text_dir, tmp_path_factory):
    """The texts as the released archive holds them, and other modules."""
    path = tmp_path_factory.mktemp("archive") / "v1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(text_dir / official_text.FOLDER, arcname=official_text.FOLDER)
        info = tarfile.TarInfo(
            f"{official_text.FOLDER}/interpolate/numbers__gcd.txt"
        )
        info.size = 4
        tar.addfile(info, io.BytesIO(b"1\n1\n"))
    return path


def texts(folder):
    """The text files of `MODULES` without the generator's reports."""
    return {
        path: content
        for path, content in tree(folder / official_text.FOLDER).items()
        if path.endswith(".txt")
    }


def refusal(*arguments, **kwargs):
    with pytest.raises(UsageError) as error:
        fetch_official_text(*arguments, **kwargs)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("as_text", [False, True])
def test_from_the_archive(archive, text_dir, tmp_path, as_text):
    data_dir = tmp_path / "data"
    if as_text:
        data_dir, archive = str(data_dir), str(archive)
    folder = fetch_official_text(data_dir, MODULES, archive)
    assert folder == tmp_path / "data" / "official"
    assert texts(folder) == texts(text_dir)
    # Only what was asked for was unpacked.
    assert set(tree(tmp_path / "data" / "official")) == {
        LOCK_FILE,
        *(f"{official_text.FOLDER}/{path}" for path in texts(text_dir)),
    }


def test_a_name_with_a_dot_before(text_dir, tmp_path):
    archive = tmp_path / "again.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(
            text_dir / official_text.FOLDER,
            arcname=f"./{official_text.FOLDER}",
        )
    folder = fetch_official_text(tmp_path, MODULES, archive)
    assert texts(folder) == texts(text_dir)


def test_more_modules_later(archive, text_dir, tmp_path):
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


def test_from_the_unpacked_folder(text_dir, tmp_path):
    for folder in (text_dir, text_dir / official_text.FOLDER):
        assert fetch_official_text(tmp_path, MODULES, str(folder)) == text_dir
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else(tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    message = refusal(tmp_path, MODULES, folder)
    assert repr(str(folder)) in message
    assert official_text.FOLDER in message


def test_no_archive_there(tmp_path):
    path = tmp_path / "nothing.tar.gz"
    assert f"no archive {str(path)!r}" in refusal(tmp_path, MODULES, path)


def test_not_a_tar_archive(tmp_path):
    path = tmp_path / "wrong.tar.gz"
    for content in (b"", b"<html>Not found</html>", b"\x1f\x8b\x08no"):
        path.write_bytes(content)
        message = refusal(tmp_path / "data", MODULES, path)
        assert f"{path} is no whole tar archive" in message
        assert official_archive.URL in message


@pytest.mark.parametrize("kept", [0.1, 0.3, 0.6, 0.9])
def test_an_archive_that_is_cut_off(archive, text_dir, tmp_path, kept):
    whole = archive.read_bytes()
    path = tmp_path / "cut.tar.gz"
    path.write_bytes(whole[: int(kept * len(whole))])
    message = refusal(tmp_path / "data", MODULES, path)
    assert f"{path} is no whole tar archive" in message
    # Nothing under a final name is cut off, and the next run works.
    for name, content in tree(tmp_path).items():
        if name.endswith(".txt"):
            name = name.partition(f"{official_text.FOLDER}/")[2]
            assert content == texts(text_dir)[name]
    folder = fetch_official_text(tmp_path / "data", MODULES, archive)
    assert texts(folder) == texts(text_dir)


@pytest.mark.parametrize("place", [0.05, 0.35, 0.65, 0.95])
def test_an_archive_with_damage(archive, tmp_path, place):
    content = bytearray(archive.read_bytes())
    start = int(place * len(content))
    content[start : start + 40] = bytes(40)
    path = tmp_path / "damaged.tar.gz"
    path.write_bytes(content)
    message = refusal(tmp_path / "data", MODULES, path)
    assert f"{path} is no whole tar archive" in message


def without_time(member):
    """Has an archive the same length whenever it is made."""
    member.mtime = 0
    return member


@pytest.fixture(scope="module")
def small_archives(tmp_path_factory):
    """The bytes of small archives, by their suffix; the files in them."""
    folder = tmp_path_factory.mktemp("small")
    root = folder / official_text.FOLDER
    for split in SPLITS:
        if path := official_text.text_path(root, split, SMALL):
            official_text.write_problems(
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
def test_an_archive_with_any_damage(small_archives, suffix, data):
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
        root = folder / "data" / "official" / official_text.FOLDER
        message = None
        try:
            fetch_official_text(folder / "data", [SMALL], path)
        except UsageError as error:
            message = str(error)
        unpacked = tree(root)
    if message is not None:
        assert message.startswith(f"{path} ")
        assert "\n" not in message
        assert unpacked == {}
    elif suffix == "tar":
        # A plain archive tells damage of its headers alone.
        assert unpacked.keys() == expected.keys()
    else:
        assert unpacked == expected


@pytest.mark.parametrize("suffix", ["tar.bz2", "tar.xz"])
@pytest.mark.parametrize("place", [0.5, 0.9])
def test_damage_after_a_whole_block(tmp_path, suffix, place):
    # Found while a file is copied, not when the archive is opened.
    root = tmp_path / official_text.FOLDER
    numbers = random.Random(0)
    for split in ("train_easy", "interpolate"):
        official_text.write_problems(
            official_text.text_path(root, split, SMALL),
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
    assert f"{path} is no whole tar archive" in message
    assert not list((tmp_path / "data").rglob("*.txt"))


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_every_compression(small_archives, tmp_path, suffix):
    archives, expected = small_archives
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(archives[suffix])
    folder = fetch_official_text(tmp_path, [SMALL], path)
    assert tree(folder / official_text.FOLDER) == expected


def test_an_archive_that_lacks_a_file(small_archives, tmp_path):
    path = tmp_path / "a.tar.xz"
    path.write_bytes(small_archives[0]["tar.xz"])
    message = refusal(tmp_path / "data", [SMALL, "numbers__gcd"], path)
    assert f"{path} lacks" in message
    assert "/numbers__gcd.txt" in message
    assert not list(tmp_path.rglob("*.txt"))


def test_a_full_disk(small_archives, tmp_path, monkeypatch):
    def copyfileobj(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.tar.bz2"
    path.write_bytes(small_archives[0]["tar.bz2"])
    monkeypatch.setattr(shutil, "copyfileobj", copyfileobj)
    # Not the archive's fault.
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
    assert tree(folder / official_text.FOLDER) == small_archives[1]
    assert f"unpacks an archive in the folder '{folder}'" in messages[0]


def test_what_a_killed_process_left_is_removed(small_archives, tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(small_archives[0]["tar.gz"])
    root = tmp_path / "official" / official_text.FOLDER
    left = root / "train-easy" / f"{PARTIAL}01234567-{SMALL}.txt"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    fetch_official_text(tmp_path, [SMALL], path)
    assert tree(root) == small_archives[1]


def test_another_archive(tmp_path):
    path = tmp_path / "other.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(__file__, arcname="interpolate/numbers__place_value.txt")
    message = refusal(tmp_path / "data", MODULES, path)
    assert "another archive" in message
    assert official_archive.URL in message


def test_a_download(archive, text_dir, tmp_path, monkeypatch):
    asked = []

    def get_file(name, origin, **kwargs):
        asked.append((name, origin, kwargs))
        return str(archive)

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    folder = fetch_official_text(tmp_path, MODULES)
    assert texts(folder) == texts(text_dir)
    ((name, origin, kwargs),) = asked
    assert name == "mathematics_dataset-v1.0.tar.gz"
    assert origin == official_archive.URL
    assert kwargs["cache_dir"] == tmp_path
    assert kwargs["file_hash"] == official_archive.SHA256


def test_a_download_is_told_in_plain_lines(
    archive, text_dir, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(official_archive, "URL", archive.as_uri())
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    monkeypatch.setattr(official_archive, "SHA256", digest)
    folder = fetch_official_text(tmp_path, MODULES)
    assert texts(folder) == texts(text_dir)
    # Not the bar that Keras would draw.
    assert capsys.readouterr().out == f"Downloading {archive.as_uri()}.\n"
    assert keras.utils.is_interactive_logging_enabled()


def test_one_process_downloads(tmp_path, monkeypatch):
    monkeypatch.setattr(keras.utils, "get_file", None)
    with folder_lock(tmp_path / "downloads", "downloads"):
        message = refusal(tmp_path, MODULES)
    assert "Another process downloads the archive" in message


@pytest.mark.parametrize(
    "error",
    [
        Exception("URL fetch failure on https://...: None -- [Errno -2]"),
        ValueError("Incomplete or corrupted file detected."),
        ConnectionResetError(104, "Connection reset by peer"),
    ],
)
def test_a_download_that_fails(tmp_path, monkeypatch, error):
    def get_file(*args, **kwargs):
        raise error

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    message = refusal(tmp_path, MODULES)
    assert official_archive.URL in message
    assert str(error) in message
    assert "--archive" in message
    assert "--source=generated" in message


def test_official_and_generated_are_read_alike(
    archive, data_dir, text_dir, tmp_path
):
    folder = fetch_official_text(tmp_path, MODULES, archive)
    for module in MODULES:
        builder = prepare_dataset(module, tmp_path, folder)
        # The released archive tells nothing of how it was made.
        assert dict(builder.info.metadata) == {"also_in_evaluation": 0}
    for module in MODULES:
        name = f"mathematics_dataset/{module}/1.0.0"
        ours = tree(tmp_path / name)
        theirs = tree(data_dir / name)
        # Beside them is where records start, with the file's time.
        records = [
            path
            for path in theirs
            if "tfrecord" in path and not path.endswith(".npy")
        ]
        assert len(records) >= len(SPLITS) - 1
        for path in records:
            assert ours[path] == theirs[path]

import hashlib
import io
import tarfile

import keras
import pytest

from tests.data_generators.files import MODULES
from tests.data_generators.files import tree
from tpt_keras.data_generators import official_archive
from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.official_archive import find_text_dir
from tpt_keras.data_generators.prepared_data import prepare_dataset
from tpt_keras.errors import UsageError


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
        find_text_dir(*arguments, **kwargs)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("as_text", [False, True])
def test_from_the_archive(archive, text_dir, tmp_path, as_text):
    data_dir = tmp_path / "data"
    if as_text:
        data_dir, archive = str(data_dir), str(archive)
    folder = find_text_dir(data_dir, MODULES, archive)
    assert folder == tmp_path / "data" / "official"
    assert texts(folder) == texts(text_dir)
    # Only what was asked for was unpacked.
    assert set(tree(tmp_path / "data" / "official")) == {
        f"{official_text.FOLDER}/{path}" for path in texts(text_dir)
    }


def test_a_name_with_a_dot_before(text_dir, tmp_path):
    archive = tmp_path / "again.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(
            text_dir / official_text.FOLDER,
            arcname=f"./{official_text.FOLDER}",
        )
    folder = find_text_dir(tmp_path, MODULES, archive)
    assert texts(folder) == texts(text_dir)


def test_more_modules_later(archive, text_dir, tmp_path):
    folder = find_text_dir(tmp_path, MODULES[:1], archive)
    first = {path: path.stat().st_mtime_ns for path in folder.rglob("*.txt")}
    assert len(first) == 5
    assert find_text_dir(tmp_path, MODULES, archive) == folder
    assert texts(folder) == texts(text_dir)
    assert first == {path: path.stat().st_mtime_ns for path in first}
    # With all there, the archive is not read again.
    wrong = tmp_path / "wrong.tar.gz"
    wrong.write_bytes(b"")
    assert find_text_dir(tmp_path, MODULES, wrong) == folder


def test_from_the_unpacked_folder(text_dir, tmp_path):
    for folder in (text_dir, text_dir / official_text.FOLDER):
        assert find_text_dir(tmp_path, MODULES, str(folder)) == text_dir
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
    folder = find_text_dir(tmp_path / "data", MODULES, archive)
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
    folder = find_text_dir(tmp_path, MODULES)
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
    folder = find_text_dir(tmp_path, MODULES)
    assert texts(folder) == texts(text_dir)
    # Not the bar that Keras would draw.
    assert capsys.readouterr().out == f"Downloading {archive.as_uri()}.\n"
    assert keras.utils.is_interactive_logging_enabled()


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
    folder = find_text_dir(tmp_path, MODULES, archive)
    for module in MODULES:
        builder = prepare_dataset(module, tmp_path, folder)
        # The released archive tells nothing of how it was made.
        assert dict(builder.info.metadata) == {"also_in_evaluation": 0}
    for module in MODULES:
        name = f"mathematics_dataset/{module}/1.0.0"
        ours = tree(tmp_path / name)
        theirs = tree(data_dir / name)
        records = [path for path in theirs if "tfrecord" in path]
        assert len(records) >= 2 * (len(SPLITS) - 1)
        for path in records:
            assert ours[path] == theirs[path]

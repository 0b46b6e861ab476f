import hashlib

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.serving.exported_files import CHECKSUMS_ASSET
from tpt_keras.serving.exported_files import find_saved_model
from tpt_keras.serving.exported_files import version_paths


def make_version(folder):
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").touch()
    return folder


def test_versions_are_numbered_folders(tmp_path):
    for name in ("1", "2", "10", "partial", "3-old", "-4", "1.5", "\u0663"):
        (tmp_path / name).mkdir()
    (tmp_path / "20").touch()
    assert version_paths(tmp_path) == {
        number: tmp_path / str(number) for number in (1, 2, 10)
    }
    assert version_paths(tmp_path / "nothing") == {}


def test_the_newest_version_is_found(tmp_path):
    for name in ("1", "9", "00000010", "partial"):
        make_version(tmp_path / name)
    assert find_saved_model(str(tmp_path)) == tmp_path / "00000010"
    assert find_saved_model(tmp_path / "9") == tmp_path / "9"


@pytest.mark.parametrize("made", [[], ["folder"], ["folder/1"], ["folder/x"]])
def test_a_missing_saved_model_is_refused(tmp_path, made):
    for name in made:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UsageError) as caught:
        find_saved_model(tmp_path / "folder")
    assert caught.value.path == str(tmp_path / "folder")


def test_checksums_have_the_format_of_sha256sum(version):
    lines = (version / CHECKSUMS_ASSET).read_text().splitlines()
    files = [path for path in version.rglob("*") if path.is_file()]
    assert len(lines) == len(files) - 1
    for line in lines:
        checksum, name = line.split("  ")
        content = (version / name).read_bytes()
        assert checksum == hashlib.sha256(content).hexdigest()

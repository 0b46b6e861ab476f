import pytest

from tpt_keras.errors import UsageError
from tpt_keras.serving.versions import find_saved_model
from tpt_keras.serving.versions import version_paths


def make_version(folder):
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").touch()
    return folder


def test_version_paths(tmp_path):
    for name in ("1", "2", "10", "partial", "3-old", "-4", "1.5", "\u0663"):
        (tmp_path / name).mkdir()
    (tmp_path / "20").touch()
    assert version_paths(tmp_path) == {
        number: tmp_path / str(number) for number in (1, 2, 10)
    }
    assert version_paths(tmp_path / "nothing") == {}


def test_leading_zeros(tmp_path):
    """As TF Serving has it: a number, from the folder as it is called."""
    for name in ("00000001", "007", "0007", "12", "012", "0", "00"):
        (tmp_path / name).mkdir()
    assert {n: p.name for n, p in version_paths(tmp_path).items()} == {
        0: "0",
        1: "00000001",
        7: "007",
        12: "12",
    }
    make_version(tmp_path / "00000013")
    assert find_saved_model(tmp_path) == tmp_path / "00000013"


def test_numbers_beyond_64_bits(tmp_path):
    last = 2**63 - 1
    for name in (str(last), str(last + 1), "9" * 200):
        (tmp_path / name).mkdir()
    assert list(version_paths(tmp_path)) == [last]


def test_the_newest_version(tmp_path):
    for name in ("1", "9", "10"):
        make_version(tmp_path / name)
    make_version(tmp_path / "partial")
    assert find_saved_model(tmp_path) == tmp_path / "10"
    assert find_saved_model(str(tmp_path)) == tmp_path / "10"


def test_a_version_itself(tmp_path):
    path = make_version(tmp_path / "3")
    make_version(tmp_path / "4")
    assert find_saved_model(path) == path


@pytest.mark.parametrize("made", [[], ["folder"], ["folder/1"], ["folder/x"]])
def test_no_saved_model(tmp_path, made):
    for name in made:
        (tmp_path / name).mkdir(parents=True)
    path = tmp_path / "folder"
    with pytest.raises(UsageError) as caught:
        find_saved_model(path)
    message = str(caught.value)
    assert repr(str(path)) in message
    assert "tpt_keras export" in message
    assert "\n" not in message


def test_a_file_is_no_saved_model(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(UsageError):
        find_saved_model(path)

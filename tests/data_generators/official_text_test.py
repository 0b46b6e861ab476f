import errno
import os
import pathlib
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpt_keras.data_generators import official_text
from tpt_keras.data_generators.mathematics_modules import EXTRAPOLATION_MODULES
from tpt_keras.data_generators.mathematics_modules import MODULES
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.vocabulary import CHARACTERS

TEXT = st.text(CHARACTERS, min_size=1, max_size=40)
GOOD = b"What is 1 + 1?\n2\nWhat is 2 - 3?\n-1\n"


@pytest.fixture
def path(tmp_path):
    """Where a file of the official layout goes."""
    file = tmp_path / "train-easy" / "numbers__gcd.txt"
    file.parent.mkdir()
    return file


def read(path, data=None):
    if data is not None:
        path.write_bytes(data)
    return list(official_text.read_problems(path))


def error_of(path, data=None):
    with pytest.raises(UsageError) as error:
        read(path, data)
    assert "\n" not in str(error.value)
    return str(error.value)


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1))
def test_reading_inverts_writing(problems):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "new" / "module.txt"
        official_text.write_problems(path, problems)
        assert read(path) == problems
        assert path.read_text().splitlines() == [
            line for problem in problems for line in problem
        ]
        assert list(path.parent.iterdir()) == [path]


def test_line_ends_of_another_system(path):
    assert read(path, GOOD.replace(b"\n", b"\r\n")) == read(path, GOOD)


def test_a_file_is_whole_or_not_there(path, monkeypatch):
    def problems():
        yield "What is 1 + 1?", "2"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left"):
        official_text.write_problems(path, problems())
    assert not path.exists()
    official_text.write_problems(path, [("What is 1 + 1?", "2")])
    assert path.read_text() == "What is 1 + 1?\n2\n"
    # Nor is a file that is there touched.
    with pytest.raises(OSError, match="No space left"):
        official_text.write_problems(path, problems())
    assert path.read_text() == "What is 1 + 1?\n2\n"


@pytest.mark.parametrize("cut", range(1, len(GOOD)))
def test_a_file_that_is_cut_off_anywhere(path, cut):
    if GOOD[:cut] == b"What is 1 + 1?\n2\n":
        assert read(path, GOOD[:cut]) == [("What is 1 + 1?", "2")]
        return
    message = error_of(path, GOOD[:cut])
    assert f"{path} is cut off" in message
    assert f"it has {len(GOOD[:cut].splitlines())} lines" in message


def test_a_problem_that_is_cut_off_is_not_read(path):
    path.write_bytes(GOOD[:-2])
    problems = official_text.read_problems(path)
    assert next(problems) == ("What is 1 + 1?", "2")
    with pytest.raises(UsageError, match="cut off"):
        next(problems)


def test_an_empty_file(path):
    message = error_of(path, b"")
    assert f"{path} is empty" in message
    assert "again" in message


def test_a_missing_file(path):
    message = error_of(path)
    assert "train-easy/numbers__gcd.txt is missing" in message
    assert repr(str(path.parent.parent)) in message


@pytest.mark.parametrize(
    ("byte", "shown"),
    [
        (b"%", "'%'"),
        (b"\t", r"'\t'"),
        (b"\x00", r"'\x00'"),
        (b"\xe9", "'\xe9'"),
        (b"\xc3\xa9", "'\xc3'"),
        (b"\xff", "'\xff'"),
    ],
)
@pytest.mark.parametrize("line", [1, 2, 3, 4])
def test_a_character_outside_the_vocabulary(path, byte, shown, line):
    lines = GOOD.splitlines(keepends=True)
    lines[line - 1] = lines[line - 1][:1] + byte + lines[line - 1][1:]
    message = error_of(path, b"".join(lines))
    assert "Module numbers__gcd (train-easy)" in message
    assert f"line {line}:" in message
    assert f"character {shown}" in message


@given(st.integers(0, 255))
def test_every_byte_is_known_or_refused(byte):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "module.txt"
        path.write_bytes(b"1" + bytes([byte]) + b"1\n2\n")
        if chr(byte) in CHARACTERS:
            assert read(path) == [(f"1{chr(byte)}1", "2")]
        elif byte != ord("\n"):
            assert repr(chr(byte)) in error_of(path)


@pytest.mark.parametrize("line", [1, 2, 3, 4])
def test_an_empty_line(path, line):
    lines = GOOD.splitlines(keepends=True)
    lines[line - 1] = b"\n"
    message = error_of(path, b"".join(lines))
    assert f"Module numbers__gcd (train-easy), line {line} is empty" in message


def test_text_path():
    paths = {
        split: official_text.text_path("root", split, "numbers__place_value")
        for split in SPLITS
    }
    assert {split: str(path) for split, path in paths.items()} == {
        "train_easy": "root/train-easy/numbers__place_value.txt",
        "train_medium": "root/train-medium/numbers__place_value.txt",
        "train_hard": "root/train-hard/numbers__place_value.txt",
        "interpolate": "root/interpolate/numbers__place_value.txt",
        "extrapolate": "root/extrapolate/numbers__place_value_big.txt",
    }
    assert official_text.text_path("root", "extrapolate", "numbers__gcd") is (
        None
    )


def test_split_module():
    names = [
        official_text.split_module("extrapolate", module) for module in MODULES
    ]
    assert sorted(filter(None, names)) == sorted(EXTRAPOLATION_MODULES)
    for split in SPLITS[:-1]:
        for module in MODULES:
            assert official_text.split_module(split, module) == module

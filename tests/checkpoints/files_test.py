import os

import pytest

from tests.checkpoints.conversion_test import torch
from tests.refusals import refused
from tpt_keras.checkpoints.conversion import read_checkpoint
from tpt_keras.checkpoints.conversion import read_vocabulary
from tpt_keras.errors import UnreadableFileError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint.pt"


def save(path, content, is_zip=False):
    torch.save(content, path, _use_new_zipfile_serialization=is_zip)


def assert_unreadable(path):
    with pytest.raises(UnreadableFileError) as caught:
        read_checkpoint(path)
    assert caught.value.path == str(path)
    assert "\n" not in str(caught.value)
    # PyTorch's advice, to run the code in the file.
    assert "`weights_only`" not in str(caught.value)


@pytest.mark.parametrize("is_zip", [True, False])
def test_every_float_type_is_read_as_float32(path, is_zip):
    values = torch.tensor([0.5, -2.0, 3.0])
    types = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    state = {f"module.{dtype}": values.to(dtype) for dtype in types}
    state["parameter"] = torch.nn.Parameter(values)
    save(path, {"model": state, "optimizer": {"betas": (0.9, 0.995)}}, is_zip)
    weights = read_checkpoint(path)
    assert weights.keys() == {*map(str, types), "parameter"}
    for array in weights.values():
        assert array.dtype == "float32"
        assert array.tolist() == [0.5, -2.0, 3.0]


class Malicious:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("is_zip", [True, False])
def test_code_in_the_file_is_not_run(path, is_zip):
    harm = path.with_name("harm")
    content = {"model": {"w": torch.ones(3)}, "optimizer": Malicious(harm)}
    save(path, content, is_zip)
    assert_unreadable(path)
    assert not harm.exists()


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {"weights": 1},
        {"model": [1]},
        {"model": {"w": "text"}},
        {"model": {3: torch.ones(2)}},
    ],
    ids=str,
)
def test_other_contents_are_refused(path, content):
    save(path, content)
    assert_unreadable(path)


@pytest.mark.parametrize("is_zip", [True, False])
def test_other_and_truncated_files_are_refused(path, is_zip):
    save(path, {"model": {"w": torch.ones(3000)}}, is_zip)
    whole = path.read_bytes()
    for content in (
        b"",
        b"hello world",
        b"PK\x03\x04 and no archive",
        whole[:60],
        whole[: len(whole) // 2],
        whole[:-3],
    ):
        path.write_bytes(content)
        assert_unreadable(path)


SYMBOLS = ("<unk>", "<pad>", "<sos>", "<eos>", *" 0aé")
EXPECTED = ("<unknown>", "<pad>", "<start>", "<end>", *" 0aé")


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_line_of_characters_is_a_vocabulary(tmp_path, end):
    path = tmp_path / "vocabulary.txt"
    path.write_bytes(f" 0aé{end}".encode())
    assert read_vocabulary(path) == EXPECTED
    assert read_vocabulary(str(path)) == EXPECTED


@pytest.mark.parametrize("symbols", [SYMBOLS, EXPECTED])
def test_a_sequence_of_symbols_is_a_vocabulary(symbols):
    assert read_vocabulary(symbols) == EXPECTED


@pytest.mark.parametrize("content", [b"ab\ncd\n", b"a\tb", b"\xff\xfe"])
def test_other_text_is_no_vocabulary(tmp_path, content):
    (tmp_path / "vocabulary.txt").write_bytes(content)
    with pytest.raises(UnreadableFileError):
        read_vocabulary(tmp_path / "vocabulary.txt")


@pytest.mark.parametrize(
    ("symbols", "part"),
    [
        (("<pad>", "<sos>", "<eos>", "a", "a"), "'a'"),
        (("<pad>", "<sos>", "a"), "<end>"),
        ("nowhere.txt", "nowhere.txt"),
    ],
)
def test_symbols_that_make_no_vocabulary_are_refused(symbols, part):
    with refused(part=part):
        read_vocabulary(symbols)

import dataclasses
import json
import math
import pickle
import sys
import zipfile

import numpy as np
import pytest

from tests.refusals import refused
from tpt_keras import errors
from tpt_keras.files import reading
from tpt_keras.settings import check_settings
from tpt_keras.settings import setting


@dataclasses.dataclass
class Config:
    size: int = setting(1, minimum=1)
    rate: float = setting(1.0, above=0, below=2)
    kind: str = setting("a", choices=("a", "b"))
    names: tuple = setting(())

    def __post_init__(self):
        check_settings(self)


@pytest.mark.parametrize(
    "error",
    [
        errors.UsageError("a", "field", "path"),
        errors.UnreadableFileError("a", path="path"),
    ],
)
def test_errors_pass_between_processes(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_types_are_those_of_the_fields():
    config = Config(size=np.int64(3), rate=1, names=["a"])
    assert (type(config.size), type(config.rate)) == (int, float)
    assert config.names == ("a",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 1.5},
        {"size": True},
        {"size": 0},
        {"rate": "1"},
        {"rate": 0},
        {"rate": 2},
        {"rate": math.nan},
        {"kind": "c"},
        {"kind": None},
        {"names": 3},
    ],
)
def test_wrong_value_names_its_field(wrong):
    with refused(*wrong):
        Config(**wrong)


def test_missing_package_names_its_extra(monkeypatch):
    errors.require("json", "torch")
    with refused(part="tpt_keras[torch]", error=errors.MissingDependencyError):
        errors.require("not_there", "torch")
    monkeypatch.setitem(sys.modules, "json", None)
    with pytest.raises(errors.MissingDependencyError):
        errors.require("json", "torch")


@pytest.mark.parametrize(
    "read",
    [
        lambda path: json.loads(path.read_text()),
        zipfile.ZipFile,
        lambda path: path.with_name("not_there").read_text(),
        lambda path: Config(size=path.read_text()),
    ],
)
def test_every_failure_to_read_is_one_error(tmp_path, read):
    path = tmp_path / "a.json"
    path.write_text("damaged")
    unreadable = refused(path=path, error=errors.UnreadableFileError)
    with unreadable, reading(path):
        read(path)


def test_unreadable_file_keeps_its_own_name(tmp_path):
    with (
        refused(path=tmp_path / "inner", error=errors.UnreadableFileError),
        reading(tmp_path),
        reading(tmp_path / "inner", "Make it again."),
    ):
        raise EOFError

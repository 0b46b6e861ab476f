import pathlib
import sys
import zipfile

import huggingface_hub
import keras
import pytest

from tests.refusals import refused
from tpt_keras.errors import MissingDependencyError
from tpt_keras.errors import UnreadableFileError
from tpt_keras.models import TRAINED_PRESETS
from tpt_keras.models import Transformer
from tpt_keras.models import stored
from tpt_keras.models.stored import BEST_MODEL_FILE
from tpt_keras.models.stored import MODEL_FILE
from tpt_keras.models.stored import ROOTS
from tpt_keras.models.stored import load_model
from tpt_keras.models.stored import resolve


def test_the_best_is_another_one(tmp_path, tiny_config):
    models = {
        name: Transformer(tiny_config.replace(hidden_dim=hidden_dim))
        for name, hidden_dim in ((MODEL_FILE, 8), (BEST_MODEL_FILE, 4))
    }
    for name, model in models.items():
        model.save(tmp_path / name)
    assert load_model(tmp_path).config == models[MODEL_FILE].config
    best = load_model(tmp_path, best=True)
    assert best.config == models[BEST_MODEL_FILE].config


@pytest.mark.parametrize(
    ("best", "missing", "other"),
    [(False, MODEL_FILE, BEST_MODEL_FILE), (True, BEST_MODEL_FILE, MODEL_FILE)],
)
def test_folder_without_the_model(tmp_path, best, missing, other):
    (tmp_path / other).touch()
    with refused(path=tmp_path / missing):
        load_model(tmp_path, best)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tiny_config):
    """The bytes of a small model's file."""
    path = tmp_path_factory.mktemp("saved") / MODEL_FILE
    Transformer(tiny_config).save(path)
    return path.read_bytes()


def assert_unreadable(path, best=False):
    with refused(path=path, error=UnreadableFileError):
        load_model(path.parent, best)


@pytest.mark.parametrize("size", [0, 1000, -1])
def test_truncated_file(tmp_path, saved, size):
    for name in (MODEL_FILE, BEST_MODEL_FILE):
        (tmp_path / name).write_bytes(saved[:size])
        assert_unreadable(tmp_path / name, best=name == BEST_MODEL_FILE)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_flipped_bit(tmp_path, saved, share):
    content = bytearray(saved)
    content[int(share * len(content))] ^= 0x04
    (tmp_path / MODEL_FILE).write_bytes(content)
    assert_unreadable(tmp_path / MODEL_FILE)


def test_another_model_of_keras(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / MODEL_FILE)
    with refused(part="Sequential"):
        load_model(tmp_path)


def test_a_model_of_another_version(tmp_path, saved):
    path = tmp_path / "saved.keras"
    path.write_bytes(saved)
    with (
        zipfile.ZipFile(path) as archive,
        zipfile.ZipFile(tmp_path / MODEL_FILE, "w") as other,
    ):
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                content = content.replace(b'"hidden_dim"', b'"hidden_size"')
            other.writestr(name, content)
    assert_unreadable(tmp_path / MODEL_FILE)


def test_a_file_without_permission_is_not_damaged(tmp_path, saved, monkeypatch):
    (tmp_path / MODEL_FILE).write_bytes(saved)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(PermissionError):
        load_model(tmp_path)


def test_a_path_comes_before_a_preset_of_its_name(tmp_path, monkeypatch):
    [name] = TRAINED_PRESETS
    monkeypatch.chdir(tmp_path)
    # Of an export, say.
    (tmp_path / "saved_models" / name).mkdir(parents=True)
    assert resolve(name) == ROOTS[0] / name
    (tmp_path / name).mkdir()
    assert resolve(name) == pathlib.Path(name)


@pytest.mark.parametrize("name", ["nothing", "transformer", *TRAINED_PRESETS])
def test_a_model_that_is_nowhere(name, monkeypatch, tmp_path):
    monkeypatch.setattr(stored, "ROOTS", (tmp_path,))
    with refused("model", path=name):
        resolve(name)


def test_a_model_on_the_hub(tmp_path, monkeypatch):
    asked = []

    def download(repo_id):
        asked.append(repo_id)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve("hf://user/name") == tmp_path
    assert asked == ["user/name"]


def test_a_model_that_is_not_on_the_hub(monkeypatch):
    def download(repo_id):
        raise huggingface_hub.errors.LocalEntryNotFoundError("No network.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with refused("model"):
        resolve("hf://user/name")


def test_without_the_package_of_the_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError):
        resolve("hf://user/name")

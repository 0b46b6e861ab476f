"""The places of trained presets, their download and the Hugging Face Hub."""

import hashlib
import os
import pathlib
import subprocess
import sys
import threading

import huggingface_hub
import keras
import pytest

from tpt_keras import pretrained
from tpt_keras.errors import MissingDependencyError
from tpt_keras.errors import UsageError
from tpt_keras.pretrained import TRAINED_PRESETS
from tpt_keras.pretrained import URL_VARIABLE
from tpt_keras.pretrained import TrainedPreset
from tpt_keras.pretrained import find_model
from tpt_keras.pretrained import trained_folder

CONTENTS = {"config.json": b"{}", "weights": bytes(range(256)) * 1000}


def write(folder):
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def published(tmp_path, monkeypatch):
    """The folder of a preset `solver` at an address; no other place has it."""
    folder = write(tmp_path / "published" / "solver")
    digests = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in CONTENTS.items()
    }
    preset = TrainedPreset(digests, folder.as_uri())
    monkeypatch.setitem(TRAINED_PRESETS, "solver", preset)
    monkeypatch.setattr(
        pretrained,
        "PLACES",
        (pathlib.Path("saved_models"), tmp_path / "checkout"),
    )
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


def cached(tmp_path):
    """The folders of the cache; its lock is a file."""
    folder = tmp_path / "keras" / "models" / "tpt_keras"
    return [path for path in folder.glob("*") if path.is_dir()]


@pytest.mark.parametrize("name", TRAINED_PRESETS)
def test_the_checkout_has_what_the_table_names(name):
    folder = pretrained.PLACES[1] / name
    for file, digest in TRAINED_PRESETS[name].digests.items():
        content = (folder / file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, file


@pytest.mark.parametrize("place", ["saved_models", "checkout"])
def test_a_folder_on_the_disk_comes_first(published, tmp_path, place):
    folder = write(tmp_path / place / "solver")
    assert trained_folder("solver").resolve() == folder
    (folder / "weights").unlink()
    assert trained_folder("solver").resolve() != folder


def test_a_folder_of_the_same_name_is_meant_by_it(published, tmp_path):
    folder = trained_folder("solver")
    assert find_model("solver") == folder
    (tmp_path / "solver").mkdir()
    assert find_model("solver") == pathlib.Path("solver")


def test_a_user_without_a_home_has_a_cache(monkeypatch):
    monkeypatch.delenv("KERAS_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    [name] = TRAINED_PRESETS
    assert pretrained._cache_folder(name).is_absolute()
    assert trained_folder(name) == pretrained.PLACES[0] / name


def test_downloads_once(published, tmp_path, capsys):
    folder = trained_folder("solver")
    assert cached(tmp_path) == [folder]
    assert contents(folder) == CONTENTS
    # Where a command prints its answers.
    assert capsys.readouterr().out == ""
    (published / "weights").unlink()
    assert trained_folder("solver") == folder


def test_a_lost_file_is_downloaded_again(published):
    folder = trained_folder("solver")
    (folder / "weights").unlink()
    assert trained_folder("solver") == folder
    assert contents(folder) == CONTENTS


def test_other_weights_have_another_folder(published, monkeypatch):
    folder = trained_folder("solver")
    (published / "weights").write_bytes(b"better")
    digests = {
        **TRAINED_PRESETS["solver"].digests,
        "weights": hashlib.sha256(b"better").hexdigest(),
    }
    monkeypatch.setitem(
        TRAINED_PRESETS, "solver", TrainedPreset(digests, published.as_uri())
    )
    assert trained_folder("solver") != folder
    assert (trained_folder("solver") / "weights").read_bytes() == b"better"


@pytest.mark.parametrize("end", ["", "/"])
def test_the_address_can_be_set(published, monkeypatch, end):
    digests = TRAINED_PRESETS["solver"].digests
    monkeypatch.setitem(TRAINED_PRESETS, "solver", TrainedPreset(digests))
    monkeypatch.setenv(URL_VARIABLE, published.parent.as_uri() + end)
    assert contents(trained_folder("solver")) == CONTENTS


def assert_refused(*parts):
    with pytest.raises(UsageError) as error:
        trained_folder("solver")
    assert error.value.field == "preset"
    for part in parts:
        assert str(part) in str(error.value)


def test_without_an_address(published, monkeypatch, tmp_path):
    digests = TRAINED_PRESETS["solver"].digests
    monkeypatch.setitem(TRAINED_PRESETS, "solver", TrainedPreset(digests))
    assert_refused(
        "saved_models/solver",
        tmp_path / "checkout" / "solver",
        tmp_path / "keras",
        URL_VARIABLE,
    )


@pytest.mark.parametrize(
    "url", ["file:///nowhere", "http://127.0.0.1:9/models", "nonsense"]
)
def test_an_address_that_cannot_be_read(published, monkeypatch, tmp_path, url):
    monkeypatch.setenv(URL_VARIABLE, url)
    assert_refused(f"{url}/solver")
    assert cached(tmp_path) == []


def test_a_wrong_digest_leaves_nothing(published, tmp_path):
    (published / "weights").write_bytes(CONTENTS["weights"][:-1])
    assert_refused(published.as_uri())
    assert cached(tmp_path) == []
    (published / "weights").write_bytes(CONTENTS["weights"])
    assert contents(trained_folder("solver")) == CONTENTS


def test_a_killed_download_is_repeated(published, tmp_path, monkeypatch):
    folder = pretrained._cache_folder("solver")
    partial = write(folder.with_name("partial"))
    (partial / "weights").write_bytes(b"half")
    get_file = keras.utils.get_file
    seen = []

    def watched(*args, **kwargs):
        seen.append(folder.exists())
        return get_file(*args, **kwargs)

    monkeypatch.setattr(keras.utils, "get_file", watched)
    assert contents(trained_folder("solver")) == CONTENTS
    # The folder has its name when it is whole.
    assert seen == [False, False]
    assert cached(tmp_path) == [folder]


def test_threads_at_once(published, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(trained_folder("solver")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert cached(tmp_path) == list(set(found))
    assert contents(found[0]) == CONTENTS


@pytest.mark.slow
def test_processes_at_once(tmp_path, monkeypatch):
    [name] = TRAINED_PRESETS
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv(URL_VARIABLE, pretrained.PLACES[1].as_uri())
    script = (
        "from tpt_keras import pretrained\n"
        "pretrained.PLACES = ()\n"
        f"print(pretrained.trained_folder({name!r}))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate() for process in processes]
    [folder] = {pathlib.Path(out.strip()) for out, _ in outputs}
    for file, digest in TRAINED_PRESETS[name].digests.items():
        content = (folder / file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest
    # One of them downloads.
    assert sum("Downloading" in err for _, err in outputs) == 1


def test_a_model_on_the_hub(tmp_path, monkeypatch):
    asked = []

    def download(repo_id):
        asked.append(repo_id)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert find_model("hf://user/name") == tmp_path
    assert asked == ["user/name"]


def test_a_model_that_is_not_on_the_hub(monkeypatch):
    def download(repo_id):
        raise huggingface_hub.errors.LocalEntryNotFoundError("No network.")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(UsageError) as error:
        find_model("hf://user/name")
    assert error.value.field == "preset"
    assert "No network" in str(error.value)


def test_without_the_package_of_the_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError):
        find_model("hf://user/name")

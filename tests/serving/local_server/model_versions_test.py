"""Which version answers, and when another takes over."""

import shutil
import threading
import time

import grpc
import pytest
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_pb2

from tests.serving import toy_model
from tpt_keras.errors import UsageError
from tpt_keras.serving.local_server import model_versions
from tpt_keras.serving.local_server.batching import Batching
from tpt_keras.serving.local_server.model_versions import ModelVersions
from tpt_keras.serving.local_server.request_error import RequestError

State = get_model_status_pb2.ModelVersionStatus.State


@pytest.fixture
def folder(tmp_path):
    return toy_model.save(tmp_path / "toy", 1, "one ")


@pytest.fixture
def versions(folder):
    return ModelVersions("toy", folder, Batching(4))


def model_spec(version=None):
    spec = model_pb2.ModelSpec(name="toy")
    if version is not None:
        spec.version.value = version
    return spec


def states(versions):
    response = versions.status(model_spec())
    return {
        status.version: State.Name(status.state)
        for status in response.model_version_status
    }


def ask(versions):
    import numpy as np

    questions = np.array([b"x"], object)
    model = versions.get(model_spec())
    return model.run("", {"questions": questions})["answers"][0].decode()


def test_takeover(versions, folder):
    old = versions.get(model_spec())
    versions.refresh()
    # Nothing new: nothing is loaded.
    assert versions.get(model_spec(1)) is old
    toy_model.save(folder, 3, "three ")
    assert ask(versions) == "one x"
    versions.refresh()
    assert ask(versions) == "three x"
    assert states(versions) == {1: "END", 3: "AVAILABLE"}
    # By its number, and not below.
    assert versions.get(model_spec(3)).version == 3
    with pytest.raises(RequestError, match=r"Specific\(toy, 1\)") as error:
        versions.get(model_spec(1))
    assert error.value.code == grpc.StatusCode.NOT_FOUND
    toy_model.save(folder, 2, "two ")
    versions.refresh()
    assert ask(versions) == "three x"


def test_going_back(versions, folder):
    toy_model.save(folder, 2, "two ")
    versions.refresh()
    shutil.rmtree(folder / "2")
    versions.refresh()
    assert ask(versions) == "one x"
    assert states(versions) == {1: "AVAILABLE", 2: "END"}
    # The last one goes on without its files.
    shutil.rmtree(folder / "1")
    versions.refresh()
    assert ask(versions) == "one x"


def test_a_version_that_cannot_be_loaded(versions, folder, monkeypatch):
    errors = []
    monkeypatch.setattr(
        model_versions.logging, "error", lambda *args: errors.append(args)
    )
    (folder / "2").mkdir()
    for _ in range(3):
        versions.refresh()
        assert ask(versions) == "one x"
    [_, status] = versions.status(model_spec()).model_version_status
    assert State.Name(status.state) == "END"
    assert status.status.error_code
    assert "saved_model.pb" in status.status.error_message
    # It is said once, however often it is tried.
    assert len(errors) == 1
    # As when a version is copied to its place, and not yet there.
    shutil.rmtree(folder / "2")
    toy_model.save(folder, 2, "two ")
    versions.refresh()
    assert ask(versions) == "two x"
    assert states(versions) == {1: "END", 2: "AVAILABLE"}


def test_a_half_copied_version(versions, folder):
    shutil.copytree(folder / "1", folder / "2")
    shutil.rmtree(folder / "2" / "variables")
    versions.refresh()
    assert states(versions) == {1: "AVAILABLE", 2: "END"}
    assert ask(versions) == "one x"


def test_the_old_one_answers_while_the_new_one_loads(
    versions, folder, monkeypatch
):
    loading, loaded = threading.Event(), threading.Event()
    load = model_versions.ServedModel

    def load_slowly(*args):
        loading.set()
        assert loaded.wait(60)
        return load(*args)

    monkeypatch.setattr(model_versions, "ServedModel", load_slowly)
    toy_model.save(folder, 2, "two ")
    versions.poll(0.01)
    try:
        assert loading.wait(60)
        assert states(versions) == {1: "AVAILABLE", 2: "LOADING"}
        old = versions.get(model_spec())
        assert ask(versions) == "one x"
        loaded.set()
        while ask(versions) == "one x":
            time.sleep(0.01)
        assert ask(versions) == "two x"
    finally:
        versions.stop()
    # Who has the old one can go on with it.
    monkeypatch.setattr(versions, "get", lambda spec: old)
    assert ask(versions) == "one x"


def test_versions_with_other_names(versions, folder):
    """Leading zeros are no part of a number; one beyond 64 bits is none."""
    (folder / "9999999999999999999999").mkdir()
    versions.refresh()
    assert ask(versions) == "one x"
    toy_model.save(folder, "00000002", "two ")
    versions.refresh()
    assert ask(versions) == "two x"
    assert states(versions) == {1: "END", 2: "AVAILABLE"}
    # The same number in another folder is the same version.
    current = versions.get(model_spec())
    toy_model.save(folder, "2", "again ")
    versions.refresh()
    assert versions.get(model_spec()) is current


def test_looking_goes_on(versions, folder, monkeypatch):
    """When a disk was away for a while."""
    errors = []
    monkeypatch.setattr(
        model_versions.logging, "error", lambda *args: errors.append(args)
    )
    find = model_versions.version_paths

    def fail_twice(path):
        if len(errors) < 2:
            raise OSError("Stale file handle")
        return find(path)

    monkeypatch.setattr(model_versions, "version_paths", fail_twice)
    toy_model.save(folder, 2, "two ")
    versions.poll(0.01)
    try:
        deadline = time.monotonic() + 60
        while ask(versions) != "two x":
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        versions.stop()
    assert len(errors) == 2


def test_nothing_to_serve(tmp_path):
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError, match="tpt_keras export"):
            ModelVersions("toy", folder, Batching(4))
    (tmp_path / "1").mkdir()
    with pytest.raises(UsageError, match=r"saved_model\.pb"):
        ModelVersions("toy", tmp_path, Batching(4))
    toy_model.save(tmp_path / "2", 5)
    with pytest.raises(UsageError, match="folder of the versions"):
        ModelVersions("toy", tmp_path / "2" / "5", Batching(4))

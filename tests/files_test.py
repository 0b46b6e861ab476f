import multiprocessing
import os
import threading

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.files import PARTIAL
from tpt_keras.files import folder_lock
from tpt_keras.files import plain_path
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file
from tpt_keras.files import whole_folder


def test_a_file_has_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("old")
    with whole_file(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
        assert partial.name.startswith(PARTIAL)
        assert partial.suffix == ".json"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def write_half(path):
    with whole_file(path) as partial:
        partial.write_text("half")
        raise RuntimeError


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError):
        write_half(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_what_was_there(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(RuntimeError):
        write_half(path)
    assert path.read_text() == "old"


def test_two_may_write_the_same_file_at_once(tmp_path):
    path = tmp_path / "a"
    with whole_file(path) as one:
        with whole_file(path) as two:
            one.write_text("one")
            two.write_text("two")
        assert path.read_text() == "two"
    assert path.read_text() == "one"


def test_a_full_disk_is_named(tmp_path):
    def write():
        with whole_file(tmp_path / "model.keras") as partial:
            partial.symlink_to("/dev/full")
            partial.write_text("one")

    with pytest.raises(OSError, match=r"No space left on .*model\.keras"):
        write()
    assert not list(tmp_path.iterdir())


def test_an_error_without_a_number_keeps_its_message(tmp_path):
    with (
        pytest.raises(OSError, match=r"^h5py is unhappy$"),
        whole_file(tmp_path / "model.keras"),
    ):
        raise OSError("h5py is unhappy")


def test_what_killed_processes_left_is_removed(tmp_path):
    others = {"other.json", "partial-01234567-other.json", "partial-a.json"}
    for name in (*others, "a.json", "partial-89abcdef-a.json"):
        (tmp_path / name).touch()
    remove_partial(tmp_path / "a.json")
    assert {path.name for path in tmp_path.iterdir()} == {*others, "a.json"}


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?", "back\\slash"])
def test_a_path_that_is_no_pattern(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = plain_path(name)
    assert not set("*?[\\") & set(str(path))
    assert plain_path(tmp_path / name) == path
    # The folder need not be there before.
    (tmp_path / name).mkdir()
    (path / "file").write_text("one")
    assert (tmp_path / name / "file").read_text() == "one"


def test_a_path_that_is_plain_already(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert plain_path("run 1") == tmp_path / "run 1"


@pytest.mark.parametrize("sync", [True, False])
def test_it_is_on_the_disk_first_if_that_is_asked(tmp_path, monkeypatch, sync):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with whole_file(tmp_path / "a", sync=sync) as partial:
        partial.write_text("new")
    assert (tmp_path / "a").read_text() == "new"
    assert len(synced) == sync


def test_a_lock_is_held_by_one(tmp_path):
    folder = tmp_path / "model"
    with folder_lock(folder, "trains"):
        with (
            pytest.raises(UsageError, match=r"process trains in .*model"),
            folder_lock(folder, "trains"),
        ):
            pass
        with folder_lock(tmp_path / "other", "trains"):
            pass
    with folder_lock(folder, "trains"):
        pass


def test_a_lock_holds_against_threads(tmp_path):
    refused = []

    def try_it():
        try:
            with folder_lock(tmp_path, "trains"):
                pass
        except UsageError:
            refused.append(True)

    with folder_lock(tmp_path, "trains"):
        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
    assert refused


def hold(folder, is_held):
    with folder_lock(folder, "trains"):
        is_held.set()
        threading.Event().wait()


def test_a_lock_dies_with_its_process(tmp_path):
    context = multiprocessing.get_context("spawn")
    is_held = context.Event()
    process = context.Process(target=hold, args=(tmp_path, is_held))
    process.start()
    try:
        assert is_held.wait(60)
        with pytest.raises(UsageError), folder_lock(tmp_path, "trains"):
            pass
    finally:
        process.kill()
        process.join()
    with folder_lock(tmp_path, "trains"):
        pass


def test_a_folder_is_whole_or_not_there(tmp_path):
    # What a killed process left.
    left = tmp_path / "partial" / "half"
    left.parent.mkdir()
    left.touch()
    with whole_folder(tmp_path / "1") as partial:
        assert list(tmp_path.iterdir()) == []
        partial.mkdir()
        (partial / "file").touch()
        assert not (tmp_path / "1").exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["1", "file"]

    def fail(folder):
        folder.mkdir()
        raise ZeroDivisionError

    with (
        pytest.raises(ZeroDivisionError),
        whole_folder(tmp_path / "2") as partial,
    ):
        fail(partial)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]

import os
import threading

import pytest

from tests.refusals import refused
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.files import PARTIAL
from tpt_keras.files import folder_lock
from tpt_keras.files import reading
from tpt_keras.files import refuse_pattern
from tpt_keras.files import remove_partial
from tpt_keras.files import whole_file
from tpt_keras.files import whole_folder


def test_file_gets_its_name_when_it_is_whole(tmp_path):
    path = tmp_path / "config.json"
    path.write_text("old")
    with whole_file(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
        assert partial.name.startswith(PARTIAL)
        assert partial.suffix == ".json"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def fail_after(function, *args):
    function(*args)
    raise ZeroDivisionError


def test_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as partial:
        fail_after(partial.write_text, "half")
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "old"


def test_two_writers_do_not_mix(tmp_path):
    path = tmp_path / "a"
    with whole_file(path) as one:
        with whole_file(path) as two:
            one.write_text("one")
            two.write_text("two")
        assert path.read_text() == "two"
    assert path.read_text() == "one"


def test_link_stays_a_link(tmp_path):
    target = tmp_path / "elsewhere" / "a"
    target.parent.mkdir()
    link = tmp_path / "link"
    link.symlink_to(target)
    with whole_file(link) as partial:
        partial.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_full_disk_is_named(tmp_path):
    path = tmp_path / "model.keras"

    def write():
        with whole_file(path) as partial:
            partial.symlink_to("/dev/full")
            partial.write_text("one")

    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert caught.value.filename == str(path)
    assert not list(tmp_path.iterdir())


def test_error_without_a_number_keeps_its_message(tmp_path):
    with (
        pytest.raises(OSError, match=r"^h5py is unhappy$"),
        whole_file(tmp_path / "model.keras"),
    ):
        raise OSError("h5py is unhappy")


def test_partial_files_of_killed_processes_are_removed(tmp_path):
    others = {"other.json", "partial-01234567-other.json", "partial-a.json"}
    for name in (*others, "a.json", "partial-89abcdef-a.json"):
        (tmp_path / name).touch()
    remove_partial(tmp_path / "a.json")
    assert {path.name for path in tmp_path.iterdir()} == {*others, "a.json"}


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?", "back\\slash"])
def test_patterns_are_refused(name):
    refuse_pattern("run 1")
    with refused("data_dir", path=name):
        refuse_pattern(name, "data_dir")


@pytest.mark.parametrize("sync", [True, False])
def test_sync_waits_for_the_disk(tmp_path, monkeypatch, sync):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with whole_file(tmp_path / "a", sync=sync) as partial:
        partial.write_text("new")
    assert len(synced) == sync


def is_locked(folder):
    try:
        with folder_lock(folder, "trains"):
            return False
    except UsageError:
        return True


def test_lock_is_held_by_one(tmp_path):
    folder = tmp_path / "model"
    with folder_lock(folder, "trains"):
        assert is_locked(folder)
        assert not is_locked(tmp_path / "other")
        found = []
        thread = threading.Thread(
            target=lambda: found.append(is_locked(folder))
        )
        thread.start()
        thread.join()
        assert found == [True]
    assert not is_locked(folder)


def test_folder_gets_its_name_when_it_is_whole(tmp_path):
    # The remains of a killed process.
    left = tmp_path / "partial" / "half"
    left.parent.mkdir()
    left.touch()
    with whole_folder(tmp_path / "1") as partial:
        assert list(tmp_path.iterdir()) == []
        partial.mkdir()
        (partial / "file").touch()
        assert not (tmp_path / "1").exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["1", "file"]

    with (
        pytest.raises(ZeroDivisionError),
        whole_folder(tmp_path / "2") as partial,
    ):
        fail_after(partial.mkdir)
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_key_is_no_reason_alone(tmp_path):
    match = "KeyError: 17"
    with pytest.raises(UnreadableFileError, match=match), reading(tmp_path):
        raise KeyError(17)

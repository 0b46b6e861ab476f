import json
import pathlib
import subprocess
import sys

import pytest

import tpt_keras

# In KiB: too small for the first checkpoint, for the best model and for
# TensorBoard's logs; for the second checkpoint; and for the finished model.
DISKS = [[40, 140, 300, 440], [520], [600]]

UNSHARE = ["unshare", "--map-root-user", "--mount"]


def can_mount():
    try:
        return subprocess.run([*UNSHARE, "true"], check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_goes_on_when_there_is_room(tmp_path, place_value_data):
    if not can_mount():
        pytest.skip("No file system of its own can be mounted here.")
    job = {
        "folder": str(tmp_path / "disk"),
        "disks": DISKS,
        "data_dir": str(place_value_data),
    }
    process = subprocess.run(
        [
            *UNSHARE,
            sys.executable,
            "-m",
            "tests.training.full_disk_driver",
            json.dumps(job),
        ],
        cwd=pathlib.Path(tpt_keras.__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    disks = list(map(json.loads, process.stdout.splitlines()))
    assert [len(disk["errors"]) for disk in disks] == list(map(len, DISKS))
    for disk in disks:
        for error in disk["errors"]:
            assert "No space left on device" in error, disk
            assert "model/" in error, disk  # which file it was
        assert disk["is_same"], disk

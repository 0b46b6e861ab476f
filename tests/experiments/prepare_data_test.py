import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import keras
import pytest
import tensorflow as tf

from tests.conftest import MODULE
from tests.experiments.command import ROOT
from tests.experiments.command import assert_refused
from tpt_keras.data_generators.mathematics.archive import FOLDER
from tpt_keras.data_generators.mathematics.datasets import dataset_builder
from tpt_keras.data_generators.mathematics.generator import lock_unfinished
from tpt_keras.files import PARTIAL
from tpt_keras.files import folder_lock

COUNTS = ("--train_examples=90", "--evaluation_examples=20", "--num_workers=1")


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def prepare(run, data_dir):
    """Runs the command for `MODULE`."""

    def prepare(*arguments):
        return run(
            "prepare_data",
            f"--modules={MODULE}",
            f"--data_dir={data_dir}",
            *arguments,
        )

    return prepare


@pytest.fixture
def texts(place_value_data, tmp_path):
    """A folder as the official archive unpacks to."""
    folder = tmp_path / "texts" / FOLDER
    shutil.copytree(place_value_data / "generated" / FOLDER, folder)
    # A note that marks it as generated.
    (folder / f"{MODULE}.json").unlink()
    return folder


def is_prepared(data_dir, dataset="mathematics_dataset"):
    return dataset_builder(MODULE, data_dir, dataset).is_prepared()


def assert_ended_in_one_line(result, *parts):
    """`assert_refused` for a command that shows progress."""
    assert result.status == 2, result
    assert "Traceback" not in result.stderr
    lines = result.stderr.replace("\r", "\n").splitlines()
    (line,) = [line for line in lines if "error: " in line]
    assert line.rpartition("\x1b[A")[2].startswith("error: "), line
    for part in parts:
        assert str(part) in line


@pytest.mark.slow
def test_generated_problems_are_prepared_once(prepare, run, data_dir):
    result = prepare(*COUNTS)
    assert result.status == 0, result
    assert "Unknown size" not in result.stdout + result.stderr
    line = result.stdout.splitlines()[-1]
    assert str(data_dir / "mathematics_dataset" / MODULE) in line
    assert '"train_easy": 30' in line
    assert '"extrapolate": 20' in line
    assert f"{MODULE}: 30 train_easy" in result.stdout
    assert "dropped" in result.stdout

    result = prepare(*COUNTS)
    assert (result.status, result.stderr) == (0, "")
    assert f"{MODULE} is there already" in result.stdout

    result = run(
        "prepare_data",
        "--modules=numbers__gcd,numbers__place_valu?",
        f"--data_dir={data_dir}",
        *COUNTS,
    )
    assert result.status == 0, result
    assert f"{MODULE} is there already" in result.stdout
    assert "numbers__gcd/1.0.0: {" in result.stdout

    path = data_dir / "mathematics_dataset" / MODULE
    for other in ("--seed=1", "--train_examples=91"):
        result = prepare(*COUNTS, other)
        assert_refused(result, path, "--data_dir")
    assert_refused(prepare("--source=official"), path, "--source")


@pytest.mark.parametrize("dataset", ["mathematics_dataset", "math_dataset"])
def test_official_archive_is_prepared(prepare, data_dir, texts, dataset):
    arguments = (
        "--source=official",
        f"--archive={texts.parent}",
        f"--dataset={dataset}",
    )
    result = prepare(*arguments)
    assert result.status == 0, result
    assert f"{data_dir / dataset / MODULE}/1.0.0: " in result.stdout
    assert is_prepared(data_dir, dataset)
    assert "is there already" in prepare(*arguments).stdout


def test_damaged_text_is_refused(prepare, data_dir, texts):
    path = texts / "train-hard" / f"{MODULE}.txt"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    arguments = ("--source=official", f"--archive={texts}")
    assert_ended_in_one_line(prepare(*arguments), "train-hard")
    assert not list(data_dir.glob("*/*__*/[!.]*"))
    path.write_bytes(whole)
    assert prepare(*arguments).status == 0
    assert is_prepared(data_dir)


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("mathematics_dataset", "metadata.json"),
        ("math_dataset", "dataset_info.json"),
        ("math_dataset", "features.json"),
    ],
)
def test_damaged_description_is_refused(
    prepare, data_dir, texts, dataset, name
):
    # A report shows that the texts were generated, which the metadata holds.
    (texts / f"{MODULE}.json").write_text('{"seed": 0, "wanted": {}}')
    arguments = (
        "--source=official",
        f"--archive={texts}",
        f"--dataset={dataset}",
    )
    assert prepare(*arguments).status == 0
    path = data_dir / dataset / MODULE / "1.0.0" / name
    whole = path.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], bytes(len(whole))):
        path.write_bytes(damaged)
        assert_refused(
            prepare(*arguments),
            path.parent,
            f"prepare_data --modules={MODULE} --data_dir={data_dir}",
        )
    shutil.rmtree(path.parent)
    assert prepare(*arguments).status == 0
    assert is_prepared(data_dir, dataset)


def test_description_of_another_shape_is_refused(prepare, data_dir, texts):
    (texts / f"{MODULE}.json").write_text('{"seed": 0, "wanted": {}}')
    arguments = ("--source=official", f"--archive={texts}")
    assert prepare(*arguments).status == 0
    path = data_dir / "mathematics_dataset" / MODULE / "1.0.0"
    text = (path / "dataset_info.json").read_text()
    for old, new in (('"1.0.0"', '"1.0.1"'), ('"splits"', '"spl"')):
        (path / "dataset_info.json").write_text(text.replace(old, new))
        assert_refused(prepare(*arguments), path)
    (path / "dataset_info.json").write_text(text)
    (path / "metadata.json").write_text('{"generated": {"sead": 0}}')
    assert_refused(prepare(*COUNTS), path)


def test_damaged_report_is_refused(prepare, data_dir, texts):
    report = texts / f"{MODULE}.json"
    report.write_text('{"seed": ')
    arguments = ("--source=official", f"--archive={texts}")
    assert_ended_in_one_line(prepare(*arguments), report)
    assert not is_prepared(data_dir)


def test_one_process_prepares(prepare, data_dir, texts):
    generated = data_dir.joinpath(
        "generated-seed0-train90-evaluation20", FOLDER
    )
    with lock_unfinished([MODULE], generated):
        assert_refused(prepare(*COUNTS), generated, MODULE)
        folder = data_dir / "mathematics_dataset" / MODULE
        arguments = ("--source=official", f"--archive={texts}")
        with folder_lock(folder, "prepares"):
            result = prepare(*arguments)
            assert_refused(result, folder)
        assert prepare(*arguments).status == 0


@pytest.mark.slow
@pytest.mark.skipif(
    not hasattr(signal, "SIGSTOP"), reason="stops a process for a while"
)
def test_two_processes_at_once(prepare, data_dir):
    arguments = (f"--modules={MODULE}", f"--data_dir={data_dir}", *COUNTS)
    first = subprocess.Popen(
        [sys.executable, "-m", "experiments.prepare_data", *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not list(data_dir.glob("generated*/*/shards/*/*.json")):
            assert first.poll() is None
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)
        second = prepare(*COUNTS)
        first.send_signal(signal.SIGCONT)
        assert first.wait(120) == 0
    finally:
        first.kill()
        first.wait()
    assert_ended_in_one_line(second, MODULE)
    assert is_prepared(data_dir)


def full_disk(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_disk_in_tensorflow(*args, **kwargs):
    raise tf.errors.ResourceExhaustedError(
        None, None, "somewhere; No space left on device"
    )


@pytest.mark.parametrize("failure", [full_disk, full_disk_in_tensorflow])
def test_full_disk_while_the_dataset_is_written(
    prepare, data_dir, texts, monkeypatch, failure
):
    arguments = ("--source=official", f"--archive={texts}")
    with monkeypatch.context() as patch:
        patch.setattr(tf.io.TFRecordWriter, "write", failure)
        result = prepare(*arguments)
    assert_ended_in_one_line(result, "No space left", "Make room")
    assert not list(data_dir.glob("mathematics_dataset/*__*/[!.]*"))
    assert prepare(*arguments).status == 0
    assert is_prepared(data_dir)


@pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="needs a device that is full"
)
def test_full_disk_while_texts_are_written(prepare, data_dir, monkeypatch):
    path_open = pathlib.Path.open

    def open_(self, mode="r", *args, **kwargs):
        if self.name.startswith(PARTIAL) and "w" in mode:
            self = pathlib.Path("/dev/full")
        return path_open(self, mode, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "open", open_)
        result = prepare(*COUNTS)
    assert_ended_in_one_line(result, "No space left", "Make room")
    assert not list(data_dir.rglob("*.txt"))
    assert not (data_dir / "mathematics_dataset").exists()
    assert prepare(*COUNTS).status == 0
    assert is_prepared(data_dir)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--modules="], ["--modules"]),
        (["--modules=numbers__x*"], ["'numbers__x*'", MODULE]),
        (["--source=released"], ["'released'", "generated, official"]),
        (["--dataset=math"], ["'math'", "math_dataset"]),
        (["--source=official", "--archive=no.tar.gz"], ["'no.tar.gz'"]),
        (["--source=official", "--archive=tests"], ["'tests'"]),
    ],
)
def test_bad_flags_are_refused(prepare, data_dir, arguments, parts):
    assert_refused(prepare(*arguments), *parts)
    assert not data_dir.exists()


def test_other_file_is_no_archive(prepare, data_dir, tmp_path):
    archive = tmp_path / "v1.0.tar.gz"
    archive.write_bytes(b"<html>Not found</html>")
    result = prepare("--source=official", f"--archive={archive}")
    assert_ended_in_one_line(result, archive)
    assert not (data_dir / "mathematics_dataset").exists()


def test_missing_network_is_one_line(prepare, data_dir, monkeypatch):
    def get_file(*args, **kwargs):
        raise Exception("URL fetch failure on it: None -- no such name")

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    result = prepare("--source=official")
    assert_ended_in_one_line(result, "URL fetch failure", "--archive")
    assert not (data_dir / "mathematics_dataset").exists()


def test_missing_beam_is_refused(prepare, data_dir, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    result = prepare("--beam_pipeline_options=runner=DirectRunner")
    assert_refused(result, "tpt_keras[beam]")
    assert not data_dir.exists()


@pytest.mark.slow
def test_beam_generates_the_same_texts(
    prepare, data_dir, tmp_path, monkeypatch
):
    pytest.importorskip("apache_beam", reason="needs tpt_keras[beam]")
    result = prepare(
        *COUNTS,
        "--beam_pipeline_options=runner=DirectRunner,direct_num_workers=1",
    )
    assert result.status == 0, result
    with_beam = {
        path.name: path.read_bytes() for path in data_dir.glob("gen*/*/*/*.txt")
    }
    shutil.rmtree(data_dir)
    assert prepare(*COUNTS).status == 0
    assert with_beam == {
        path.name: path.read_bytes() for path in data_dir.glob("gen*/*/*/*.txt")
    }
    assert len(with_beam) == 2

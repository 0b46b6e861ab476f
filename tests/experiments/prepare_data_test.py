import contextlib
import os
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
from tests.experiments.command import run_python
from tests.experiments.command import without
from tests.experiments.interruption_test import wait_until
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators.mathematics.archive import FOLDER
from tpt_keras.data_generators.mathematics.datasets import dataset_builder
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
def texts(place_value_data, data_dir):
    """A folder as the official archive unpacks to."""
    folder = data_dir / "official" / FOLDER
    shutil.copytree(place_value_data / "generated" / FOLDER, folder)
    # A note that marks it as generated.
    (folder / f"{MODULE}.json").unlink()
    return folder


@pytest.fixture
def official(texts):
    return "--source=official"


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
    result = prepare(*COUNTS).succeeded()
    assert "Unknown size" not in result.stdout + result.stderr
    line = result.stdout.splitlines()[-1]
    assert str(data_dir / "mathematics_dataset" / MODULE) in line
    assert '"train": 90' in line
    assert '"extrapolate": 20' in line
    assert f"{MODULE}: 30 train_easy" in result.stdout

    result = run(
        "prepare_data",
        "--modules=numbers__gcd,numbers__place_valu?",
        f"--data_dir={data_dir}",
        *COUNTS,
    ).succeeded()
    assert f"{MODULE} is there already" in result.stdout
    assert "numbers__gcd/1.0.0: {" in result.stdout

    surds = "--modules=arithmetic__simplify_surd"
    prepare(*COUNTS, "--max_cost=2", "--format=tokens", surds).succeeded()
    assert list(data_dir.glob("generated-*-cost2"))
    path = data_dir / "mathematics_dataset" / "arithmetic__simplify_surd"
    for other in ([], ["--max_cost=4"]):
        refused = prepare(*COUNTS, *other, "--format=tokens", surds)
        assert_refused(refused, path)


@pytest.mark.parametrize("dataset", ["mathematics_dataset", "math_dataset"])
def test_official_archive_is_prepared(prepare, data_dir, official, dataset):
    arguments = (official, f"--dataset={dataset}")
    result = prepare(*arguments).succeeded()
    assert f"{data_dir / dataset / MODULE}/1.0.0: " in result.stdout
    assert is_prepared(data_dir, dataset)
    assert "is there already" in prepare(*arguments).stdout


@pytest.mark.slow
def test_a_file_of_problems_has_always_the_same_bytes(prepare, tmp_path):
    def written(name, *arguments):
        path = tmp_path / f"{name}.jsonl"
        folder = f"--data_dir={tmp_path / name}"
        prepare(f"--problems={path}", folder, *arguments).quiet()
        return path.read_bytes()

    first = written("first", *COUNTS)
    assert first == written("again", *COUNTS, "--num_workers=2")
    assert first != written("other", *COUNTS, "--seed=1")
    # The first problems of a larger file are the same.
    larger = written("larger", *COUNTS, "--evaluation_examples=30")
    assert larger.splitlines()[:20] == first.splitlines()[:20]
    task = open_task("text_pairs", tmp_path / "first.jsonl")
    for split in ("interpolate", "extrapolate"):
        assert len(task.examples(split)[MODULE]) == 20


def test_token_caches_alone_are_those_of_the_datasets(
    prepare, data_dir, place_value_data
):
    root = data_dir / "generated-seed0-train600-evaluation60"
    shutil.copytree(place_value_data / "generated", root)
    folder = data_dir / "mathematics_dataset" / MODULE
    arguments = ["--train_examples=600", "--evaluation_examples=60"]
    assert prepare(*arguments, "--format=tokens").status == 0
    assert not is_prepared(data_dir)

    def arrays():
        return {path.name: path.read_bytes() for path in folder.rglob("*.npy")}

    tokens = arrays()
    assert len(tokens) == 2
    again = prepare(*arguments, "--format=tokens")
    assert "is there already" in again.stdout
    problems = data_dir / "problems.jsonl"
    problems.write_text('{"question": "What is 1 + 1?"}\n')
    others = ["--seed=1", "--train_examples=601", "--source=official"]
    for other in [*others, "--difficulties=1:0:1", f"--exclude={problems}"]:
        refused = prepare(*arguments, "--format=tokens", other)
        assert_refused(refused, folder, "--data_dir")
    # The dataset takes its place.
    assert prepare(*arguments).status == 0
    assert is_prepared(data_dir)
    assert arrays() == tokens


@pytest.mark.slow
def test_token_caches_alone_need_no_tensorflow(data_dir, texts, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    modules = ("keras", "tensorflow", "tensorflow_datasets")
    run_python(
        *("-m", "experiments", "prepare_data"),
        f"--modules={MODULE}",
        f"--data_dir={data_dir}",
        "--format=tokens",
        *COUNTS,
        env=without(hidden, *modules),
    ).succeeded()
    assert list(data_dir.rglob("tokens.npy"))


@pytest.mark.parametrize("name", [f"train-hard/{MODULE}.txt", f"{MODULE}.json"])
def test_damaged_text_or_report_is_refused(
    prepare, data_dir, texts, official, name
):
    path = texts / name
    path.write_bytes(path.read_bytes()[:-1] if path.exists() else b'{"seed": ')
    assert_ended_in_one_line(prepare(official), path)
    assert not list(data_dir.glob("*/*__*/[!.]*"))


def test_damaged_description_is_refused(prepare, data_dir, official):
    assert prepare(official).status == 0
    path = data_dir / "mathematics_dataset" / MODULE / "1.0.0"
    for name in ("metadata.json", "dataset_info.json"):
        whole = (path / name).read_bytes()
        (path / name).write_bytes(whole[: len(whole) // 2])
        assert_refused(prepare(official), path)
        (path / name).write_bytes(whole)
    # Of another shape.
    text = (path / "dataset_info.json").read_text()
    (path / "dataset_info.json").write_text(text.replace('"splits"', '"spl"'))
    assert_refused(prepare(official), path)


@pytest.mark.slow
def test_machines_share_the_modules(prepare, data_dir, tmp_path):
    """One stops within a module and dies later; the others do its work."""
    modules = [MODULE, "numbers__gcd", "numbers__is_prime", "comparison__pair"]
    flags = [f"--modules={','.join(modules)}", "--format=tokens", *COUNTS]
    flags.append("--train_examples=1500")
    shared = tmp_path / "shared"
    root = shared / "generated-seed0-train1500-evaluation20" / FOLDER
    logs = [tmp_path / name for name in "abc"]
    command = (sys.executable, "-m", "experiments", "prepare_data", *flags)

    def start(log):
        process = subprocess.Popen(
            [*command, f"--data_dir={shared}"],
            cwd=ROOT,
            stdout=stack.enter_context(log.open("wb")),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        stack.callback(end, process)
        return process

    def end(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    with contextlib.ExitStack() as stack:
        dies = start(logs[0])
        wait_until(lambda: list(root.glob("shards/*/*.json")), 300)
        os.killpg(dies.pid, signal.SIGSTOP)
        (held,) = {path.parent.name for path in root.glob("shards/*/*.json")}
        others = [start(log) for log in logs[1:]]
        line = f"generate {held}"
        wait_until(
            lambda: all(line in log.read_text() for log in logs[1:]), 300
        )
        wait_until(
            lambda: len(list(root.glob("*.json"))) == len(modules) - 1, 300
        )
        assert not (root / f"{held}.json").exists()
        end(dies)
        assert [process.wait(300) for process in others] == [0, 0]
    lines = "".join(log.read_text() for log in logs)
    for module in modules:
        assert lines.count(f"{module}: 500 train_easy") == 1
    prepare(*flags).succeeded()
    trees = [
        {
            str(path.relative_to(folder)): path.read_bytes()
            for name in ("gen*/*/*/*.txt", "gen*/*/*.json", "**/*.npy")
            for path in folder.glob(name)
        }
        for folder in (shared, data_dir)
    ]
    assert trees[0] == trees[1]
    assert len(trees[0]) >= (4 + 1 + 2) * len(modules)


@pytest.mark.parametrize("format_", ["tfds", "tokens"])
def test_a_dataset_of_another_process_is_awaited(
    prepare, place_value_data, data_dir, monkeypatch, format_
):
    texts = data_dir / "generated-seed0-train600-evaluation60"
    shutil.copytree(place_value_data / "generated", texts)
    folder = data_dir / "mathematics_dataset" / MODULE
    held = folder / "1.0.0" if format_ == "tokens" else folder
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder_lock(held, "tests"))
        waits = []

        def sleep(seconds):
            waits.append(seconds)
            stack.close()

        monkeypatch.setattr(time, "sleep", sleep)
        counts = ["--train_examples=600", "--evaluation_examples=60"]
        result = prepare(*counts, f"--format={format_}").succeeded()
    assert waits
    assert f"{folder}/1.0.0: " in result.stdout


def test_full_disk_while_the_dataset_is_written(
    prepare, data_dir, official, monkeypatch
):
    def full_disk(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(
            None, None, "somewhere; No space left on device"
        )

    with monkeypatch.context() as patch:
        patch.setattr(tf.io.TFRecordWriter, "write", full_disk)
        result = prepare(official)
    assert_ended_in_one_line(result, "No space left", "Make room")
    assert not list(data_dir.glob("mathematics_dataset/*__*/[!.]*"))
    assert prepare(official).status == 0
    assert is_prepared(data_dir)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--modules=numbers__x*"], ["'numbers__x*'", MODULE]),
        (["--max_cost=nan"], ["--max_cost"]),
        (["--difficulties=1,1,2"], ["--difficulties", "'1,1,2'"]),
        (["--difficulties=1:1:2", "--dataset=math_dataset"], ["--dataset"]),
        (["--exclude=no.jsonl"], ["'no.jsonl'", "--exclude"]),
        (["--exclude=no.jsonl", "--source=official"], ["--source"]),
        (["--format=tokens", "--dataset=math_dataset"], ["'math_dataset'"]),
        (["--format=tokens", "--problems=a"], ["--format"]),
        (["--source=official", "--archive=no.tar.gz"], ["'no.tar.gz'"]),
        (["--source=official", "--archive=tests"], ["'tests'"]),
        (["--source=official", "--problems=a"], ["--problems", "--source"]),
    ],
)
def test_bad_flags_are_refused(prepare, data_dir, arguments, parts):
    assert_refused(prepare(*arguments), *parts)
    assert not data_dir.exists()


def test_missing_network_is_one_line(prepare, data_dir, monkeypatch):
    def get_file(*args, **kwargs):
        raise Exception("URL fetch failure on it: None -- no such name")

    monkeypatch.setattr(keras.utils, "get_file", get_file)
    result = prepare("--source=official")
    assert_ended_in_one_line(result, "URL fetch failure", "--archive")
    assert not (data_dir / "mathematics_dataset").exists()

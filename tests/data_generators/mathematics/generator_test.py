import concurrent.futures
import contextlib
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data_generators.files import MODULES
from tests.data_generators.files import tree
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics import generator
from tpt_keras.data_generators.mathematics import shards
from tpt_keras.data_generators.mathematics.generator import ModuleAssembly
from tpt_keras.data_generators.mathematics.generator import generate_modules
from tpt_keras.data_generators.mathematics.generator import lock_unfinished
from tpt_keras.data_generators.mathematics.generator import report_path
from tpt_keras.data_generators.mathematics.generator import split_counts
from tpt_keras.data_generators.mathematics.modules import SPLITS
from tpt_keras.data_generators.mathematics.modules import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.shards import write_shard
from tpt_keras.errors import UsageError
from tpt_keras.files import PARTIAL

ROOT = pathlib.Path(__file__).parents[3]
# A quick one, and one that takes a while for a shard.
INTERRUPTED = ("numbers__is_prime", "algebra__linear_1d_composed")
GENERATE = f"""
import pathlib, sys
from tpt_keras.data_generators.mathematics.generator import generate_modules

if __name__ == "__main__":
    generate_modules(
        {INTERRUPTED!r}, pathlib.Path(sys.argv[1]), 500, 30, num_workers=2
    )
"""


# SHA-256 of each module's texts of `text_dir`.
DIGESTS = {
    "numbers__place_value": (
        "484fb6e6f40cc032f5f1c73b9c62ef701237f4afd273f61e42c3ba2c6169a5e4"
    ),
    "measurement__conversion": (
        "3630585a7d16c58eaccbfcaa3b7841d888dccd48d73b238207a1c744a7ecaf44"
    ),
    "numbers__is_prime": (
        "78d225a6add884fac30a0d9ec038c64b751c62497e9500364900828914037e05"
    ),
}


class HereExecutor:
    """A pool of no processes, for what a test replaces in this one."""

    def __init__(self, *args, **kwargs):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def shutdown(self, cancel_futures):
        pass

    def submit(self, function, *args):
        future = concurrent.futures.Future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", HereExecutor)


@given(st.integers(0, 10**7), st.integers(0, 10**6))
def test_split_counts(train_examples, evaluation_examples):
    counts = split_counts(
        "numbers__place_value", train_examples, evaluation_examples
    )
    assert tuple(counts) == SPLITS
    training = [counts[split] for split in TRAIN_SPLITS]
    assert sum(training) == train_examples
    assert max(training) - min(training) <= 1
    assert counts["interpolate"] == counts["extrapolate"] == evaluation_examples
    assert split_counts(
        "numbers__gcd", train_examples, evaluation_examples
    ) == {
        split: count
        for split, count in counts.items()
        if split != "extrapolate"
    }


def test_generated_splits_are_unique_and_apart(text_dir):
    root = text_dir / archive.FOLDER
    expected = {f"{module}.json" for module in MODULES}
    for module in MODULES:
        report = json.loads(report_path(root, module).read_text())
        wanted = split_counts(module, 600, 100)
        assert report["wanted"] == report["examples"] == wanted
        assert report["seed"] == 3
        assert set(report["dropped"]) == {"duplicates", "also_in_evaluation"}
        assert report["raised"] == 0
        questions = {}
        for split, count in wanted.items():
            path = archive.text_path(root, split, module)
            expected.add(str(path.relative_to(root)))
            questions[split] = [
                question for question, _ in archive.read_problems(path)
            ]
            assert len(questions[split]) == count
            assert len(set(questions[split])) == count
        training = [q for split in TRAIN_SPLITS for q in questions.pop(split)]
        assert len(set(training)) == 600
        for evaluation in questions.values():
            assert not set(training) & set(evaluation)
    assert set(tree(root)) == expected
    # Easy conversions repeat.
    report = json.loads(
        report_path(root, "measurement__conversion").read_text()
    )
    assert report["dropped"]["duplicates"] > 0


@pytest.mark.parametrize("module", MODULES)
def test_seed_gives_the_same_problems_forever(text_dir, module):
    digest = hashlib.sha256()
    for path in sorted(text_dir.glob(f"*/*/{module}*.txt")):
        digest.update(path.read_bytes())
    assert digest.hexdigest() == DIGESTS[module]


@pytest.mark.slow
def test_workers_and_order_do_not_matter(text_dir, tmp_path):
    root = tmp_path / "new" / "folder"
    for modules in (MODULES[:0:-1], MODULES):
        generate_modules(modules, root, 600, 100, seed=3, num_workers=1)
    assert tree(root) == tree(text_dir / archive.FOLDER)


def test_progress_is_logged_without_a_terminal(
    here, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(generator, "_SECONDS_PER_LINE", 0)
    module = "numbers__place_value"
    with caplog.at_level("INFO", "tpt_keras"):
        generate_modules([module], tmp_path, 600, 60, num_workers=1)
    *lines, last = caplog.messages
    assert last.startswith(f"{module}: 200 train_easy")
    counts = [int(line.split()[0]) for line in lines]
    assert counts == sorted(counts)
    assert 0 < counts[0] < counts[-1] == 720


def test_finished_module_is_left_alone(text_dir, tmp_path, monkeypatch):
    root = tmp_path / archive.FOLDER
    for path, content in tree(text_dir / archive.FOLDER).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    monkeypatch.setattr(generator, "ModuleAssembly", None)
    generate_modules(MODULES, root, 600, 100, seed=3)
    assert before == {path: path.stat().st_mtime_ns for path in root.rglob("*")}


def test_resumes_from_whole_and_damaged_shards(
    here, text_dir, tmp_path, monkeypatch
):
    module = "numbers__is_prime"
    folder = tmp_path / "shards" / module
    folder.mkdir(parents=True)
    write_shard(folder / "interpolate-000000.json", module, "interpolate", 0, 3)
    for number, content in enumerate(("", '{"problems": [["What is', "null")):
        (folder / f"train_easy-{number:06d}.json").write_text(content)
    left = tmp_path / "train-easy" / f"{PARTIAL}01234567-{module}.txt"
    left.parent.mkdir()
    left.write_text("half")
    drawn = []
    monkeypatch.setattr(
        shards,
        "write_shard",
        lambda path, *rest: drawn.append(path.name) or write_shard(path, *rest),
    )
    generate_modules([module], tmp_path, 600, 100, seed=3)
    assert "interpolate-000000.json" not in drawn
    assert "train_easy-000000.json" in drawn
    expected = tree(text_dir / archive.FOLDER)
    assert tree(tmp_path) == {
        path: content for path, content in expected.items() if module in path
    }


def test_report_counts_errors(here, tmp_path, monkeypatch):
    module = "numbers__is_prime"
    calls = iter(range(10**6))

    def draw():
        # Shards take 400 problems: every tenth call raises an error.
        if (call := next(calls)) % 10 == 5:
            raise AssertionError
        return types.SimpleNamespace(question=f"Is {call} prime?", answer="1")

    monkeypatch.setattr(
        shards, "problem_functions", lambda split: {module: draw}
    )
    generate_modules([module], tmp_path, 300, 100)
    report = json.loads(report_path(tmp_path, module).read_text())
    assert 44 <= report["raised"] <= 45
    assert sum(report["examples"].values()) == 400


def test_module_that_only_raises_is_refused(here, tmp_path, monkeypatch):
    broken = "numbers__is_prime"

    def draw():
        raise AssertionError("impossible")

    monkeypatch.setattr(
        shards, "problem_functions", lambda split: {broken: draw}
    )
    with pytest.raises(UsageError) as error:
        generate_modules([broken], tmp_path, 60, 10)
    assert f"module {broken} (" in str(error.value)
    assert "AssertionError: impossible" in str(error.value)
    assert not report_path(tmp_path, broken).exists()


def test_one_process_generates_a_module(here, text_dir, tmp_path):
    busy, free = MODULES[0], "numbers__is_prime"
    with lock_unfinished([busy], tmp_path) as unfinished:
        assert unfinished == [busy]
        with pytest.raises(UsageError) as error:
            generate_modules([free, busy], tmp_path, 600, 100, seed=3)
        assert busy in str(error.value)
        assert not list(tmp_path.glob("*.json"))
        generate_modules([free], tmp_path, 60, 10, seed=3)
        with lock_unfinished([free], tmp_path) as unfinished:
            assert unfinished == []
    with lock_unfinished([busy, free], tmp_path) as unfinished:
        assert unfinished == [busy]


def test_memory_does_not_grow_with_the_workers(here, tmp_path, monkeypatch):
    alive, most = set(), []

    class Assembly(ModuleAssembly):
        def __init__(self, module, *args):
            super().__init__(module, *args)
            alive.add(module)
            most.append(len(alive))

    write_module = generator.write_module

    def written(root, assembly):
        write_module(root, assembly)
        alive.remove(assembly.module)

    def write_shard(path, module, split, shard, seed):
        problems = [(f"{split} {shard} {n}", "1") for n in range(100)]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"problems": problems}))

    monkeypatch.setattr(generator, "ModuleAssembly", Assembly)
    monkeypatch.setattr(generator, "write_module", written)
    monkeypatch.setattr(shards, "write_shard", write_shard)
    monkeypatch.setattr(generator, "_PROBLEMS_IN_MEMORY", 2000)
    modules = [f"numbers__{number}" for number in range(12)]
    generate_modules(modules, tmp_path, 400, 50, num_workers=64)
    assert len(most) == 12
    assert max(most) == 2000 // 500


def start(script, folder):
    """A process of its own session, that can be killed with its children."""
    script.write_text(GENERATE)
    return subprocess.Popen(
        [sys.executable, script, folder],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def members(session):
    """The processes of a session."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(path.name)) == session:
                found.append(int(path.name))
    return found


def kill_session(session):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(
    not pathlib.Path("/proc/self").exists(), reason="looks into /proc"
)
def test_killed_run_resumes(tmp_path):
    whole, root = tmp_path / "whole", tmp_path / "interrupted"
    generate_modules(INTERRUPTED, whole, 500, 30, num_workers=2)

    process = start(tmp_path / "generate.py", root)
    try:
        wait_for(lambda: len(list(root.glob("shards/algebra*/*.json"))) >= 2)
    finally:
        # The process alone: its workers have to notice.
        process.kill()
        process.wait()
    try:
        wait_for(lambda: not members(process.pid))
    finally:
        kill_session(process.pid)
    assert not report_path(root, "algebra__linear_1d_composed").exists()
    # Files are whole.
    for path in root.glob("*/*.txt"):
        assert (
            path.read_bytes() == (whole / path.relative_to(root)).read_bytes()
        )

    generate_modules(INTERRUPTED, root, 500, 30, num_workers=1)
    assert tree(root) == tree(whole)

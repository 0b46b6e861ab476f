import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data_generators.files import MODULES
from tests.data_generators.files import tree
from tpt_keras.data_generators import official_text
from tpt_keras.data_generators import problem_generation
from tpt_keras.data_generators.mathematics_modules import SPLITS
from tpt_keras.data_generators.mathematics_modules import TRAIN_SPLITS
from tpt_keras.data_generators.problem_generation import generate_modules
from tpt_keras.data_generators.problem_generation import report_path
from tpt_keras.data_generators.problem_generation import split_counts

ROOT = pathlib.Path(__file__).parent.parent.parent
# A quick one, and one that takes a while for a shard.
INTERRUPTED = ("numbers__is_prime", "algebra__linear_1d_composed")
GENERATE = f"""
import pathlib, sys
from tpt_keras.data_generators.problem_generation import generate_modules

if __name__ == "__main__":
    generate_modules(
        {INTERRUPTED!r}, pathlib.Path(sys.argv[1]), 900, 60, num_workers=2
    )
"""


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


def test_what_is_generated(text_dir):
    root = text_dir / official_text.FOLDER
    expected = {f"{module}.json" for module in MODULES}
    for module in MODULES:
        report = json.loads(report_path(root, module).read_text())
        wanted = split_counts(module, 600, 100)
        assert report["wanted"] == report["examples"] == wanted
        assert report["seed"] == 3
        assert set(report["dropped"]) == {"duplicates", "also_in_evaluation"}
        questions = {}
        for split, count in wanted.items():
            path = official_text.text_path(root, split, module)
            expected.add(str(path.relative_to(root)))
            questions[split] = [
                question for question, _ in official_text.read_problems(path)
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


@pytest.mark.slow
def test_the_number_of_workers_does_not_matter(text_dir, tmp_path, capsys):
    root = tmp_path / "new" / "folder"
    # Nor do the order of the modules and what is made together.
    for modules in (MODULES[:0:-1], MODULES):
        generate_modules(modules, root, 600, 100, seed=3, num_workers=1)
    assert tree(root) == tree(text_dir / official_text.FOLDER)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.partition(":")[0] for line in lines) == sorted(MODULES)
    for line in lines:
        assert "200 train_easy" in line
        assert "100 interpolate" in line
        assert " duplicates, " in line
        assert " also_in_evaluation" in line


def test_lines_say_how_far_it_is(tmp_path, monkeypatch, capsys):
    """Where the output is no terminal, as here."""
    monkeypatch.setattr(problem_generation, "_SECONDS_PER_LINE", 0)
    module = "numbers__place_value"
    generate_modules([module], tmp_path, 600, 60, num_workers=1)
    *lines, last = capsys.readouterr().out.splitlines()
    assert last.startswith(f"{module}: 200 train_easy")
    drawn = [
        line.partition(" of 720 problems of 1 modules")[0] for line in lines
    ]
    counts = [int(number) for number in drawn]
    assert counts == sorted(counts)
    assert 0 < counts[0] < counts[-1] == 720


def test_a_finished_module_is_left_alone(text_dir, tmp_path, monkeypatch):
    root = tmp_path / official_text.FOLDER
    for path, content in tree(text_dir / official_text.FOLDER).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    monkeypatch.setattr(problem_generation, "ModuleAssembly", None)
    generate_modules(MODULES, root, 600, 100, seed=3)
    assert before == {path: path.stat().st_mtime_ns for path in root.rglob("*")}


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


def wait_for(condition, seconds=60):
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
def test_interrupted_and_restarted(tmp_path):
    whole, root = tmp_path / "whole", tmp_path / "interrupted"
    generate_modules(INTERRUPTED, whole, 900, 60, num_workers=2)

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
    shards = {
        path: path.stat().st_mtime_ns
        for path in root.glob("shards/algebra*/*.json")
    }
    assert len(shards) >= 2
    assert not report_path(root, "algebra__linear_1d_composed").exists()
    # Nothing under a final name is half.
    for path in root.glob("*/*.txt"):
        assert (
            path.read_bytes() == (whole / path.relative_to(root)).read_bytes()
        )

    process = start(tmp_path / "generate.py", root)
    try:
        wait_for(
            lambda: len(list(root.glob("shards/algebra*/*.json"))) > len(shards)
        )
        again = {path: path.stat().st_mtime_ns for path in shards}
    finally:
        kill_session(process.pid)
        process.wait()
    assert again == shards

    generate_modules(INTERRUPTED, root, 900, 60, num_workers=1)
    assert tree(root) == tree(whole)

import collections
import concurrent.futures
import hashlib
import json
import os
import random
import threading
import time
import tracemalloc
import types
from concurrent.futures.process import BrokenProcessPool

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.data_generators.files import MODULES
from tests.data_generators.files import copy_texts
from tests.data_generators.files import text_problems
from tests.data_generators.files import tree
from tests.refusals import refused
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics import generator
from tpt_keras.data_generators.mathematics import shards
from tpt_keras.data_generators.mathematics.datasets import prepare_dataset
from tpt_keras.data_generators.mathematics.stream import MathematicsStreamTask
from tpt_keras.errors import UsageError
from tpt_keras.files import PARTIAL

SMALL = "numbers__is_prime"
# SHA-256 of each module's texts of `text_dir`.
DIGESTS = (
    "484fb6e6f40cc032f5f1c73b9c62ef701237f4afd273f61e42c3ba2c6169a5e4",
    "3630585a7d16c58eaccbfcaa3b7841d888dccd48d73b238207a1c744a7ecaf44",
    "78d225a6add884fac30a0d9ec038c64b751c62497e9500364900828914037e05",
)


@pytest.fixture
def here(monkeypatch):
    """Generates in a thread, for what a test replaces; it starts at once."""
    monkeypatch.setattr(
        generator, "spawned_pool", concurrent.futures.ThreadPoolExecutor
    )


def test_split_counts():
    counts = generator.split_counts("numbers__place_value", 1000, 70)
    assert tuple(counts) == archive.SPLITS
    assert tuple(counts.values()) == (334, 333, 333, 70, 70)
    del counts["extrapolate"]
    assert generator.split_counts("numbers__gcd", 1000, 70) == counts
    for text, numbers in (
        ("2:2:2", counts.values()),
        ("0.1:0:0.9", (100, 0, 900, 70)),
    ):
        shares = generator.parse_difficulties(text)
        found = generator.split_counts("numbers__gcd", 1000, 70, None, shares)
        assert [*found.values()] == [*numbers]


def test_slow_modules_have_fewer_training_problems():
    for module, cost in generator.COSTS.items():
        counts = generator.split_counts(module, 90_000, 70, max_cost=2)
        training = sum(counts[split] for split in archive.TRAIN_SPLITS)
        assert training * cost == pytest.approx(90_000 * 2, rel=1e-3)
        assert counts["interpolate"] == 70
        for few in (0, 3):
            # Each difficulty keeps a problem, if there are any.
            counts = generator.split_counts(module, few, 70, max_cost=2)
            training = [counts[split] for split in archive.TRAIN_SPLITS]
            assert training == 3 * [few // 3]
    for module, max_cost in (("numbers__gcd", 2), (max(generator.COSTS), 100)):
        uniform = generator.split_counts(module, 1000, 70)
        assert generator.split_counts(module, 1000, 70, max_cost) == uniform


@pytest.mark.parametrize("module", MODULES)
def test_generated_splits_are_unique_and_apart(text_dir, module):
    root = text_dir / archive.FOLDER
    report = json.loads(archive.report_path(root, module).read_text())
    wanted = generator.split_counts(module, 600, 100)
    assert report["wanted"] == report["examples"] == wanted
    assert report["seed"] == 3
    assert report["raised"] == 0
    questions = {}
    for split, count in wanted.items():
        path = archive.text_path(root, split, module)
        questions[split] = {q for q, _ in archive.read_problems(path)}
        assert len(questions[split]) == count
    training = set.union(*map(questions.pop, archive.TRAIN_SPLITS))
    assert len(training) == 600
    for evaluation in questions.values():
        assert not training & evaluation
    # Easy conversions repeat.
    repeats = module == "measurement__conversion"
    assert (report["dropped"]["duplicates"] > 0) == repeats


@pytest.mark.parametrize(("module", "expected"), [*zip(MODULES, DIGESTS)])
def test_seed_gives_the_same_problems_forever(text_dir, module, expected):
    digest = hashlib.sha256()
    for path in sorted(text_dir.glob(f"*/*/{module}*.txt")):
        digest.update(path.read_bytes())
    assert digest.hexdigest() == expected


def test_progress_is_logged(here, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(generator, "_SECONDS_PER_LINE", 0.01)
    generate_shard = shards.generate_shard

    def wait_for_a_line(name, split, *which):
        for _ in range(1000):
            if split != "train_hard" or "Still 300 of 400" in caplog.text:
                break
            time.sleep(0.01)
        return generate_shard(name, split, *which)

    monkeypatch.setattr(shards, "generate_shard", wait_for_a_line)
    with caplog.at_level("INFO", "tpt_keras"):
        generator.generate_modules([SMALL], tmp_path, 300, 100)
    lines = [line for line in caplog.messages if "300 of 400" in line]
    assert lines[0] == "300 of 400 problems."
    assert SMALL in lines[1]
    assert caplog.messages[-1].startswith(f"{SMALL}: 100 train_easy")


def test_finished_module_is_left_alone(text_dir, tmp_path, monkeypatch):
    root = copy_texts(text_dir, tmp_path) / archive.FOLDER
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    monkeypatch.setattr(generator, "_write_module", None)
    generator.generate_modules(MODULES, root, 600, 100, seed=3)
    assert before == {path: path.stat().st_mtime_ns for path in root.rglob("*")}


def test_resumes_from_whole_and_damaged_shards(
    here, text_dir, tmp_path, monkeypatch
):
    folder = tmp_path / "shards" / SMALL
    folder.mkdir(parents=True)
    whole = folder / "interpolate-000000.json"
    shards.stored_shard(whole, SMALL, "interpolate", 0, 3)
    for number, content in enumerate(("", '{"problems": [["What is', "null")):
        (folder / f"train_easy-00000{number}.json").write_text(content)
    left = tmp_path / "train-easy" / f"{PARTIAL}01234567-{SMALL}.txt"
    left.parent.mkdir()
    left.write_text("half")
    made = []
    generate_shard = shards.generate_shard
    monkeypatch.setattr(
        shards,
        "generate_shard",
        lambda *which: made.append(which[1:3]) or generate_shard(*which),
    )
    generator.generate_modules([SMALL], tmp_path, 600, 100, seed=3)
    assert ("interpolate", 0) not in made
    assert ("train_easy", 0) in made
    expected = tree(text_dir / archive.FOLDER)
    assert tree(tmp_path) == {
        path: content for path, content in expected.items() if SMALL in path
    }


def test_shares_and_excluded_questions(here, text_dir, tmp_path):
    hard = [q for q, _ in text_problems(text_dir, ["train_hard"], SMALL)]
    excluded = {shards.question_key(question) for question in hard[::2]}
    numbers = 600, 100, 3, 1, excluded
    root = tmp_path / archive.FOLDER
    generator.generate_modules([SMALL], root, *numbers, shares=(0, 1, 2))
    report = json.loads(archive.report_path(root, SMALL).read_text())
    assert report["excluded"] == generator.keys_hash(excluded)
    info = prepare_dataset(SMALL, tmp_path, tmp_path).info
    assert info.metadata == {"generated": report}
    assert set(info.splits) == {"train_medium", "train_hard", "interpolate"}
    questions = {q for q, _ in text_problems(tmp_path, ["train_hard"], SMALL)}
    assert len(questions) == 400
    assert questions > {*hard[1::2]}
    assert not questions & {*hard[::2]}


class Fatal:
    """Ends the process that receives it."""

    def __reduce__(self):
        return os._exit, (1,)


def test_death_of_a_process_ends_the_generation(tmp_path, monkeypatch):
    monkeypatch.setattr(generator, "stored_shard", Fatal())
    with pytest.raises(BrokenProcessPool):
        generator.generate_modules(MODULES, tmp_path, 9, 9, num_workers=2)
    with refused(None):
        MathematicsStreamTask(tmp_path, MODULES)


def test_error_of_a_module_ends_the_others(here, tmp_path, monkeypatch):
    def stored_shard(path, module, *which):
        if module == SMALL:
            raise UsageError("No.", field="modules")
        return shards.Shard([])  # of others for minutes

    monkeypatch.setattr(generator, "stored_shard", stored_shard)
    before = threading.active_count()
    with refused("modules"):
        generator.generate_modules(MODULES, tmp_path, 1, 10**7, num_workers=3)
    assert threading.active_count() <= before
    left = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert set(left) == {".lock"}


SHARD_SIZE = 4
AHEAD = 3
COUNTS = st.fixed_dictionaries(
    {split: st.integers(0, 14) for split in archive.SPLITS}
)


@pytest.fixture(scope="module")
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "PROBLEMS_PER_SHARD", SHARD_SIZE)
        yield


def take(counts, questions_of):
    """Takes the problems of a module from shards that a function makes.

    Returns the problems of each split, the report, and the shards.
    """
    report = {
        "examples": dict.fromkeys(counts, 0),
        "wanted": counts,
        "dropped": {"duplicates": 0, "also_in_evaluation": 0},
        "raised": 0,
    }
    started, read = [], []

    def start(split, shard):
        assert len(started) - len(read) < AHEAD
        started.append((split, shard))

        def result():
            read.append((split, shard))
            problems = [(each, "1") for each in questions_of(split, shard)]
            return shards.Shard(problems, raised=shard)

        return types.SimpleNamespace(result=result)

    seen = collections.defaultdict(set)
    problems = {
        split: list(generator.new_problems(split, report, seen, start, AHEAD))
        for split in generator.SPLIT_ORDER
        if split in counts
    }
    # None in vain.
    assert started == read
    return problems, report, read


@pytest.mark.usefixtures("small_shards")
@settings(max_examples=20)
@given(COUNTS, st.integers(5, 80))
def test_problems_are_unique(counts, universe):
    def questions_of(split, shard):
        rng = random.Random(f"{split}/{shard}")
        return [str(rng.randrange(universe)) for _ in range(SHARD_SIZE)]

    problems, report, read = take(counts, questions_of)
    questions = {split: [q for q, _ in problems[split]] for split in counts}
    assert report["examples"] == {s: len(q) for s, q in questions.items()}
    assert report["raised"] == sum(shard for _, shard in read)
    training = [q for split in archive.TRAIN_SPLITS for q in questions[split]]
    assert len(training) == len(set(training))
    for split in archive.EVALUATION_SPLITS:
        assert len(questions[split]) == len(set(questions[split]))
        assert not set(training) & set(questions[split])
    for split, wanted in counts.items():
        assert len(questions[split]) <= wanted
        if len(questions[split]) < wanted:
            # Left short, but not before so many problems.
            of_split = sum(each == split for each, _ in read)
            assert of_split == generator.MAX_TIMES * -(-wanted // SHARD_SIZE)


@pytest.mark.usefixtures("small_shards")
def test_what_was_dropped_is_counted():
    made = {"interpolate": ["aabc"], "train_easy": ["abde", "dfgh"]}
    problems, report, _ = take(
        {"train_easy": 4, "interpolate": 3},
        lambda split, shard: made[split][shard],
    )
    questions = {s: "".join(q for q, _ in problems[s]) for s in problems}
    assert questions == {"interpolate": "abc", "train_easy": "defg"}
    # a twice, then d twice; a and b are evaluation questions.
    assert report["dropped"] == {"duplicates": 2, "also_in_evaluation": 2}


def test_memory_is_a_hash_of_each_problem():
    report = {"examples": {"train_easy": 0}, "wanted": {"train_easy": 10_000}}
    report["raised"] = 0

    def start(split, shard):
        questions = [f"{shard:03d}{number:0200d}" for number in range(100)]
        problems = [(question, "1") for question in questions]
        return types.SimpleNamespace(result=lambda: shards.Shard(problems))

    arguments = ("train_easy", report, collections.defaultdict(set), start, 1)
    tracemalloc.start()
    count = sum(1 for _ in generator.new_problems(*arguments))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 150 * 10_000

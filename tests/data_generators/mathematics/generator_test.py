import concurrent.futures
import hashlib
import json
import pathlib
import random
import tempfile
import tracemalloc
import types

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.data_generators.files import MODULES
from tests.data_generators.files import tree
from tpt_keras.data_generators.mathematics import archive
from tpt_keras.data_generators.mathematics import generator
from tpt_keras.data_generators.mathematics import shards
from tpt_keras.files import PARTIAL

SMALL = "numbers__is_prime"
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


@pytest.fixture
def here(monkeypatch):
    """Generates in a thread, for what a test replaces; it starts at once."""
    monkeypatch.setattr(
        shards, "spawned_pool", concurrent.futures.ThreadPoolExecutor
    )


def test_split_counts():
    counts = generator.split_counts("numbers__place_value", 1000, 70)
    assert tuple(counts) == archive.SPLITS
    assert tuple(counts.values()) == (334, 333, 333, 70, 70)
    del counts["extrapolate"]
    assert generator.split_counts("numbers__gcd", 1000, 70) == counts


def test_slow_modules_have_fewer_training_problems():
    for module, cost in generator.COSTS.items():
        counts = generator.split_counts(module, 90_000, 70, max_cost=2)
        training = sum(counts[split] for split in archive.TRAIN_SPLITS)
        assert training * cost == pytest.approx(90_000 * 2, rel=1e-3)
        assert counts["interpolate"] == 70
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
    training = set.union(
        *(questions.pop(split) for split in archive.TRAIN_SPLITS)
    )
    assert len(training) == 600
    for evaluation in questions.values():
        assert not training & evaluation
    # Easy conversions repeat.
    repeats = module == "measurement__conversion"
    assert (report["dropped"]["duplicates"] > 0) == repeats


@pytest.mark.parametrize("module", MODULES)
def test_seed_gives_the_same_problems_forever(text_dir, module):
    digest = hashlib.sha256()
    for path in sorted(text_dir.glob(f"*/*/{module}*.txt")):
        digest.update(path.read_bytes())
    assert digest.hexdigest() == DIGESTS[module]


def test_progress_is_logged(here, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(shards, "_SECONDS_PER_LINE", 0)
    with caplog.at_level("INFO", "tpt_keras"):
        generator.generate_modules([SMALL], tmp_path, 300, 100)
    *lines, last = caplog.messages
    assert last.startswith(f"{SMALL}: 100 train_easy")
    counts = [int(line.split()[1]) for line in lines]
    assert counts[:4] == [100, 200, 300, 400]


def test_finished_module_is_left_alone(text_dir, tmp_path, monkeypatch):
    root = tmp_path / archive.FOLDER
    for path, content in tree(text_dir / archive.FOLDER).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    monkeypatch.setattr(generator, "Assembly", None)
    generator.generate_modules(MODULES, root, 600, 100, seed=3)
    assert before == {path: path.stat().st_mtime_ns for path in root.rglob("*")}


def test_resumes_from_whole_and_damaged_shards(
    here, text_dir, tmp_path, monkeypatch
):
    folder = generator.shard_dir(tmp_path, SMALL)
    whole = generator.shard_path(folder, "interpolate", 0)
    shards.write_shard(whole, SMALL, "interpolate", 0, 3)
    for number, content in enumerate(("", '{"problems": [["What is', "null")):
        generator.shard_path(folder, "train_easy", number).write_text(content)
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


def test_report_counts_errors(here, tmp_path, monkeypatch):
    calls = iter(range(10**6))

    def problem():
        # Shards take 400 problems: every tenth call raises an error.
        if (call := next(calls)) % 10 == 5:
            raise AssertionError
        return types.SimpleNamespace(question=f"Is {call} prime?", answer="1")

    monkeypatch.setattr(
        shards, "problem_functions", lambda split: {SMALL: problem}
    )
    generator.generate_modules([SMALL], tmp_path, 300, 100)
    report = json.loads(archive.report_path(tmp_path, SMALL).read_text())
    assert 44 <= report["raised"] <= 45
    assert sum(report["examples"].values()) == 400


SHARD_SIZE = 4
COUNTS = st.fixed_dictionaries(
    {split: st.integers(0, 14) for split in archive.SPLITS}
)


@pytest.fixture(scope="module")
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "PROBLEMS_PER_SHARD", SHARD_SIZE)
        yield


def write(folder, split, shard, questions):
    problems = [(question, "1") for question in questions]
    content = {"problems": problems, "raised": shard % 3}
    generator.shard_path(folder, split, shard).write_text(json.dumps(content))


def assemble(counts, folder, universe):
    """Makes shards of few questions until a module is complete."""
    folder = pathlib.Path(folder)
    made = []
    while (assembly := generator.Assembly(folder, counts)).missing:
        assert not set(assembly.missing) & set(made)
        for split, shard in assembly.missing:
            rng = random.Random(f"{split}/{shard}")
            questions = [rng.randrange(universe) for _ in range(SHARD_SIZE)]
            write(folder, split, shard, map(str, questions))
            made.append((split, shard))
    return assembly, made


def problems_of(assembly):
    """The taken problems, read from the shards."""
    return {split: list(assembly.problems(split)) for split in assembly.counts}


@pytest.mark.usefixtures("small_shards")
@settings(max_examples=20)
@given(COUNTS, st.integers(5, 80))
def test_assembly_holds_unique_problems(counts, universe):
    with tempfile.TemporaryDirectory() as folder:
        assembly, made = assemble(counts, folder, universe)
        questions = {
            split: [question for question, _ in problems]
            for split, problems in problems_of(assembly).items()
        }
    assert assembly.examples == {s: len(q) for s, q in questions.items()}
    training = [q for split in archive.TRAIN_SPLITS for q in questions[split]]
    assert len(training) == len(set(training))
    for split in archive.EVALUATION_SPLITS:
        assert len(questions[split]) == len(set(questions[split]))
        assert not set(training) & set(questions[split])
    for split, wanted in counts.items():
        assert len(questions[split]) <= wanted
        if len(questions[split]) < wanted:
            # Left short, but not before so many problems.
            made_of_split = sum(task[0] == split for task in made)
            assert made_of_split == generator.MAX_TIMES * -(
                -wanted // SHARD_SIZE
            )


@pytest.mark.usefixtures("small_shards")
def test_what_was_dropped_is_counted(tmp_path):
    write(tmp_path, "interpolate", 0, "aabc")
    write(tmp_path, "train_easy", 0, "abde")
    write(tmp_path, "train_easy", 1, "dfgh")
    assembly = generator.Assembly(tmp_path, {"train_easy": 4, "interpolate": 3})
    assert not assembly.missing
    questions = {
        split: "".join(question for question, _ in problems)
        for split, problems in problems_of(assembly).items()
    }
    assert questions == {"interpolate": "abc", "train_easy": "defg"}
    # a twice, then d twice; a and b are evaluation questions.
    assert assembly.dropped == {"duplicates": 2, "also_in_evaluation": 2}


def test_memory_is_a_hash_of_each_problem(tmp_path):
    for shard in range(100):
        questions = [f"{shard:03d}{number:0200d}" for number in range(100)]
        write(tmp_path, "train_easy", shard, questions)
    tracemalloc.start()
    assembly = generator.Assembly(tmp_path, {"train_easy": 10_000})
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert assembly.examples == {"train_easy": 10_000}
    assert size < 150 * 10_000

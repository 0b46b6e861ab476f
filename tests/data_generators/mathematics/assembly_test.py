import json
import pathlib
import random
import tempfile
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tpt_keras.data_generators.mathematics import generator
from tpt_keras.data_generators.mathematics.generator import MAX_DRAWS
from tpt_keras.data_generators.mathematics.generator import ModuleAssembly
from tpt_keras.data_generators.mathematics.generator import shards_to_draw
from tpt_keras.data_generators.mathematics.modules import EVALUATION_SPLITS
from tpt_keras.data_generators.mathematics.modules import TRAIN_SPLITS
from tpt_keras.files import PARTIAL

MODULE = "numbers__place_value"
SHARD_SIZE = 4
SPLITS = (*EVALUATION_SPLITS, *TRAIN_SPLITS)
COUNTS = st.fixed_dictionaries({split: st.integers(0, 14) for split in SPLITS})


@pytest.fixture(autouse=True, scope="module")
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "PROBLEMS_PER_SHARD", SHARD_SIZE)
        yield


def draw(path, module, split, shard, seed, universe):
    """Takes the place of `write_shard`: few questions, so many duplicates."""
    rng = random.Random(f"{seed}/{split}/{shard}")
    problems = [
        (f"question {rng.randrange(universe)}", "1") for _ in range(SHARD_SIZE)
    ]
    content = {"problems": problems, "raised": shard % 3}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def assemble(counts, folder, universe, choose=lambda count: 0, in_flight=1):
    """Draws and adds shards, of those in flight in the order of choice."""
    assembly = ModuleAssembly(MODULE, counts, pathlib.Path(folder), seed=5)
    running = []
    asked = []
    while not assembly.is_complete:
        missing = [t for t in assembly.missing_shards() if t not in running]
        asked += missing[: in_flight - len(running)]
        running += missing[: in_flight - len(running)]
        task = running.pop(choose(len(running)))
        draw(*assembly.drawing(*task), universe)
        assembly.add_shard(*task, seconds=0.5)
    assert not list(assembly.missing_shards())
    # Nothing is drawn for a module that is whole.
    assert not running
    assert len(asked) == len(set(asked))
    return assembly, asked


def problems_of(assembly):
    """The taken problems, read from the shards."""
    return {
        split: [tuple(problem) for problem in assembly.problems(split)]
        for split in assembly.counts
    }


@settings(max_examples=20)
@given(COUNTS, st.integers(5, 80))
def test_assembly_holds_unique_problems(counts, universe):
    with tempfile.TemporaryDirectory() as folder:
        assembly, asked = assemble(counts, folder, universe)
        questions = {
            split: [question for question, _ in problems]
            for split, problems in problems_of(assembly).items()
        }
    assert assembly.examples == {s: len(q) for s, q in questions.items()}
    training = [q for split in TRAIN_SPLITS for q in questions[split]]
    assert len(training) == len(set(training))
    for split in EVALUATION_SPLITS:
        assert len(questions[split]) == len(set(questions[split]))
        assert not set(training) & set(questions[split])
    taken = sum(map(len, questions.values()))
    for split, wanted in counts.items():
        assert len(questions[split]) <= wanted
        if len(questions[split]) < wanted:
            # Left short, but not before so many draws.
            draws = sum(task[0] == split for task in asked)
            assert draws == MAX_DRAWS * -(-wanted // SHARD_SIZE)
    assert assembly.seconds == 0.5 * len(asked)
    dropped = sum(assembly.dropped.values())
    # The rest was drawn beyond a full split.
    unused = len(asked) * SHARD_SIZE - taken - dropped
    assert 0 <= unused <= SHARD_SIZE * len(SPLITS)


@settings(max_examples=20)
@given(
    COUNTS,
    st.integers(5, 80),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_order_of_arrival_does_not_matter(counts, universe, in_flight, rng):
    with tempfile.TemporaryDirectory() as folder:
        one_by_one, _ = assemble(counts, folder, universe)
        expected = problems_of(one_by_one)
    with tempfile.TemporaryDirectory() as folder:
        shuffled, _ = assemble(
            counts, folder, universe, rng.randrange, in_flight
        )
        assert problems_of(shuffled) == expected
    assert shuffled.dropped == one_by_one.dropped
    assert shuffled.raised == one_by_one.raised


@settings(max_examples=20)
@given(COUNTS, st.integers(5, 80), st.data())
def test_resumes_from_the_shards_that_are_there(counts, universe, data):
    with tempfile.TemporaryDirectory() as folder:
        whole, asked = assemble(counts, folder, universe)
        expected = problems_of(whole)
        tasks = st.sets(st.sampled_from(asked)) if asked else st.just(set())
        kept, cut = data.draw(tasks), data.draw(tasks)
        for task in set(asked) - kept:
            whole.drawing(*task)[0].unlink()
        for task in cut & kept:
            path = whole.drawing(*task)[0]
            path.write_bytes(path.read_bytes()[: data.draw(st.integers(0, 9))])
        # Leftovers of a killed process.
        for split in SPLITS:
            name = f"{PARTIAL}1-{split}-000000.json"
            (pathlib.Path(folder) / name).write_text("[")
        again, asked_again = assemble(counts, folder, universe)
        assert problems_of(again) == expected
    # Only damaged shards are drawn again.
    assert kept & set(asked_again) == kept & cut
    assert again.dropped == whole.dropped
    assert again.raised == whole.raised


def test_what_was_dropped_is_counted(tmp_path):
    shards = {
        ("interpolate", 0): "aabc",
        ("train_easy", 0): "abde",
        ("train_easy", 1): "dfgh",
    }
    for (split, shard), letters in shards.items():
        path = tmp_path / f"{split}-{shard:06d}.json"
        problems = [(letter, "1") for letter in letters]
        path.write_text(json.dumps({"problems": problems}))
    counts = {"interpolate": 3, "train_easy": 4}
    assembly = ModuleAssembly(MODULE, counts, tmp_path, seed=0)
    assert assembly.is_complete
    assert problems_of(assembly) == {
        "interpolate": [("a", "1"), ("b", "1"), ("c", "1")],
        "train_easy": [("d", "1"), ("e", "1"), ("f", "1"), ("g", "1")],
    }
    # a twice, then d twice; a and b are evaluation questions.
    assert assembly.dropped == {"duplicates": 2, "also_in_evaluation": 2}


def test_module_of_few_questions_stops(tmp_path):
    counts = {"interpolate": 4, "train_easy": 8}
    assembly, asked = assemble(counts, tmp_path, universe=5)
    assert asked.count(("train_easy", 0)) == 1
    assert sum(split == "train_easy" for split, _ in asked) == 2 * MAX_DRAWS
    # Every question was met: what interpolate has not is left for training.
    assert assembly.examples == {"interpolate": 4, "train_easy": 1}
    assert assembly.dropped["also_in_evaluation"] > 0
    assert assembly.dropped["duplicates"] > 0


@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 200))
def test_shards_to_draw(count, taken, merged):
    taken = min(taken, count)
    shards = shards_to_draw(count, taken, merged)
    most = MAX_DRAWS * -(-count // SHARD_SIZE)
    # The split is whole, or nothing more comes of drawing.
    assert (not shards) == (taken == count or merged >= most)
    if shards:
        assert shards.start == merged
        # As few as give what is missing, if they drop nothing.
        assert (len(shards) - 1) * SHARD_SIZE < count - taken
        enough = len(shards) * SHARD_SIZE >= count - taken
        assert enough or shards.stop == most


def test_requested_shards(tmp_path):
    assembly = ModuleAssembly(
        MODULE, {"extrapolate": 5, "train_hard": 1}, tmp_path, seed=7
    )
    tasks = list(assembly.missing_shards())
    assert tasks == [("extrapolate", 0), ("extrapolate", 1), ("train_hard", 0)]
    path = tmp_path / "extrapolate-000001.json"
    assert assembly.drawing(*tasks[1]) == (
        path,
        "numbers__place_value_big",
        "extrapolate",
        1,
        7,
    )
    assert assembly.drawing(*tasks[2])[1] == MODULE


def test_empty_module_is_complete(tmp_path):
    assembly = ModuleAssembly(MODULE, {"interpolate": 0}, tmp_path, seed=0)
    assert assembly.is_complete
    assert not list(assembly.missing_shards())
    assert problems_of(assembly) == {"interpolate": []}


def test_memory_is_a_hash_of_each_problem(tmp_path):
    questions = [[f"{number:0200d}", "1"] for number in range(100)]
    counts = {"train_easy": 20_000}
    for shard in range(200):
        for question in questions:
            question[0] = f"{shard:03d}{question[0][3:]}"
        path = tmp_path / f"train_easy-{shard:06d}.json"
        path.write_text(json.dumps({"problems": questions}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "PROBLEMS_PER_SHARD", 100)
        tracemalloc.start()
        assembly = ModuleAssembly(MODULE, counts, tmp_path, seed=0)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert assembly.is_complete
    assert assembly.examples == counts
    assert size < 150 * 20_000

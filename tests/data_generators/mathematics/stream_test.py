import concurrent.futures
import itertools
import multiprocessing
import os
from collections import Counter

import numpy as np
import pytest

from tests.conftest import MODULE
from tests.data_generators.batches_test import assert_batches_equal
from tests.data_generators.batches_test import decode
from tests.data_generators.files import all_texts
from tests.data_generators.files import examples_of
from tests.refusals import refused
from tpt_keras.data_generators import batches as batches_module
from tpt_keras.data_generators import open_task
from tpt_keras.data_generators import text_pairs
from tpt_keras.data_generators.batches import ProblemBatches
from tpt_keras.data_generators.mathematics import generator
from tpt_keras.data_generators.mathematics import stream
from tpt_keras.data_generators.mathematics.archive import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.stream import StreamBatches
from tpt_keras.data_generators.task import TRAIN
from tpt_keras.data_generators.task import split_batches
from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer
from tpt_keras.training.config import TrainingConfig

MODULES = (MODULE, "numbers__round_number", "numbers__gcd")


class PoolOfThisProcess(concurrent.futures.Executor):
    """Works at once and here, because a process starts for seconds."""

    def __init__(self, processes, *initial):
        _, stream._excluded = initial or (None, ())

    def submit(self, function, *args):
        future = concurrent.futures.Future()
        try:
            future.set_result(function(*args))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture(autouse=True)
def small_windows(monkeypatch):
    monkeypatch.setattr(batches_module, "WINDOW_BATCHES", 3)


@pytest.fixture
def in_this_process(monkeypatch):
    for module in (stream, generator):
        monkeypatch.setattr(module, "spawned_pool", PoolOfThisProcess)


def make_batches(weights=(1,) * 9, num_processes=1, **kwargs):
    sample = examples_of(
        ("1" * (10 + 5 * index), "1" * (1 + index % 9)) for index in range(30)
    )
    kwargs = {"batch_size": 16, "seed": 1, **kwargs}
    sample = ProblemBatches(sample, CharacterTokenizer(), **kwargs)
    return StreamBatches(sample, MODULES, weights, frozenset(), num_processes)


def read(batches, count, start_step=0):
    with batches.opened():
        return list(itertools.islice(batches.iterate(start_step), count))


def questions_of(read_batches):
    return [q for batch in read_batches for q, _ in decode(batch)]


@pytest.mark.usefixtures("in_this_process")
def test_any_step_can_be_the_first():
    batches = make_batches()
    first = read(batches, 8)
    assert [len(targets) for _, targets in first] == [16] * 8
    for start in (1, 3, 5):
        for batch, other in zip(first[start:], read(batches, 8 - start, start)):
            assert_batches_equal(batch, other)
    with batches.opened():
        halves = list(itertools.islice(batches.iterate(2, None, [1], 2), 1))
        dataset = next(iter(batches.dataset(2).as_numpy_iterator()))
    assert decode(halves[0]) == decode(first[2])[1::2]
    assert_batches_equal(dataset, first[2])


@pytest.mark.usefixtures("in_this_process")
def test_seeds_and_windows_differ():
    windows = [
        set(questions_of(read(make_batches(seed=seed), 3, start)))
        for seed, start in ((1, 0), (1, 3), (2, 0))
    ]
    for one, other in itertools.combinations(windows, 2):
        assert len(one & other) < 5


@pytest.mark.usefixtures("in_this_process")
def test_excluded_problems_never_appear(tmp_path):
    path = tmp_path / "problems.jsonl"
    options = ["evaluation_problems=1", "validation_problems=3"]
    config = TrainingConfig.from_flat(modules=MODULES, generator_processes=1)
    found, fingerprints = [], []
    for more in ("difficulties=1:0:0", f"exclude={path}"):
        options.append(more)
        task = open_task("mathematics_stream", tmp_path, MODULES, options)
        batches = task.training_batches(make_batches(), (1, 1, 1), config)
        assert {split for _, split in batches._kinds} == {"train_easy"}
        found.append(questions_of(read(batches, 6)))
        text_pairs.write_pairs(path, [text_pairs.Pair(q, "") for q in found[0]])
        fingerprints.append(task.fingerprints)
    assert len(found[0]) == len(found[1])
    assert not set(found[0]) & set(found[1])
    assert fingerprints[1].pop("excluded")
    assert fingerprints[0] == fingerprints[1]


@pytest.mark.parametrize("batch_size", [2, 7, 500])
@pytest.mark.parametrize("difficulties", [(1, 1, 1), (0, 3, 1), (1, 1, 0)])
def test_problems_follow_the_weights(batch_size, difficulties):
    weights = np.outer((1, 2, 5), difficulties)
    batches = make_batches(weights, batch_size=batch_size)
    shards, problems = [], Counter()
    for window in range(20):
        of_window = batches.window_shards(window)
        assert sum(each[-1] for each in of_window) == 3 * batch_size
        for module, split, shard, _, count in of_window:
            shards.append((module, split, shard))
            problems[module] += count
            problems[split] += count
            assert 0 < count <= 100
    assert len(set(shards)) == len(shards)
    total = 20 * 3 * batch_size
    for names, weights in ((MODULES, (1, 2, 5)), (TRAIN_SPLITS, difficulties)):
        for name, weight in zip(names, weights):
            expected = total * weight / sum(weights)
            assert abs(problems[name] - expected) < 20 + total / 100
            assert bool(problems[name]) == bool(weight)


@pytest.mark.usefixtures("in_this_process")
def test_few_windows_are_kept():
    batches = make_batches()
    with batches.opened():
        for _ in itertools.islice(batches.iterate(), 30):
            assert len(batches._futures) == 1 + stream._WINDOWS_AHEAD
    assert not batches._futures
    assert batches.seconds_waited > 0.0


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("feed", ["iterate", "dataset"])
def test_error_of_the_drawing_is_raised(monkeypatch, feed):
    def fail(*described, excluded):
        raise UsageError("No.", field="modules")

    monkeypatch.setattr(stream, "generate_shard", fail)
    batches = make_batches()
    with refused("modules"), batches.opened():
        next(iter(getattr(batches, feed)()))


def test_a_process_for_each_core_but_one(monkeypatch):
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False
    )
    assert make_batches(num_processes=0)._num_processes == 2
    assert make_batches(num_processes=7)._num_processes == 7


def test_nothing_is_generated_outside():
    with pytest.raises(RuntimeError):
        next(make_batches().iterate())


@pytest.mark.slow
@pytest.mark.parametrize("feed", ["iterate", "dataset"])
def test_death_of_a_process_is_an_error(feed):
    batches = make_batches()

    def read_and_kill():
        with batches.opened():
            for _ in getattr(batches, feed)():
                for process in multiprocessing.active_children():
                    process.kill()

    with refused("generator_processes"):
        read_and_kill()


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_held_out_problems_are_apart(tmp_path):
    options = ["evaluation_problems=30", "validation_problems=90"]
    task, again = (
        open_task("mathematics_stream", tmp_path, [MODULE, MODULES[1]], options)
        for _ in range(2)
    )
    held_out = {}
    for split, count in ((TRAIN, 45), ("interpolate", 30), ("extrapolate", 30)):
        for group, examples in task.examples(split).items():
            held_out[split, group] = texts = all_texts(examples)
            assert len(examples) == count
            assert all_texts(again.examples(split)[group]) == texts
    assert len(held_out) == 6
    assert task.fingerprints == again.fingerprints
    with pytest.raises(UsageError):
        task.examples("test")

    config = TrainingConfig.from_flat(
        modules=task.groups,
        dataset="mathematics_stream",
        module_weights=(3.0, 1.0),
        batch_size=64,
        validation_examples=20,
        generator_processes=2,
    )
    training, validation = split_batches(
        task, PRESETS["tp_transformer_tiny"], config
    )
    assert len(validation) == 20
    every = {q for pairs in held_out.values() for q, _ in pairs}
    assert set(questions_of(validation.iterate(num_epochs=1))) < every
    found = questions_of(read(training, 12))
    assert len(found) == 12 * 64
    assert not every & set(found)
    share = np.mean(["round" in question.lower() for question in found])
    assert 0.2 < share < 0.3


@pytest.mark.parametrize(
    "option",
    [
        *("evaluation_problems=0", "validation_problems=0"),
        *("exclude=no.jsonl", "exclude=pyproject.toml"),
        *(
            f"difficulties=1:{share}"
            for share in ("1", "-1:1", "nan:1", "inf:1")
        ),
        "difficulties=0:0:0",
    ],
)
def test_bad_options_are_refused(tmp_path, option):
    with refused(option.partition("=")[0]):
        open_task("mathematics_stream", tmp_path, [MODULE], [option])

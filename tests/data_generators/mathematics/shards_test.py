import json
import os
import pathlib
import random
import subprocess
import sys
import types

import numpy as np
import pytest
from sympy.core import random as sympy_random

from tpt_keras.data_generators.mathematics import shards
from tpt_keras.data_generators.mathematics.shards import Shard
from tpt_keras.data_generators.mathematics.shards import generate_shard
from tpt_keras.data_generators.mathematics.shards import generator_processes
from tpt_keras.data_generators.mathematics.shards import problem_functions
from tpt_keras.data_generators.mathematics.shards import read_shard
from tpt_keras.data_generators.mathematics.shards import write_shard
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

ROOT = pathlib.Path(__file__).parents[3]
GCD = "numbers__gcd_composed"
GENERATE_EVERYTHING = """
import json, sys
from tpt_keras.data_generators.mathematics.archive import MODULES
from tpt_keras.data_generators.mathematics.shards import generate_shard

names = list(MODULES)
if sys.argv[1] == "backwards":
    names.reverse()
print(json.dumps({
    module: generate_shard(module, "train_hard", 5, seed=2, count=1)
    for module in names
}))
"""


def draw_everything(hash_seed, order):
    process = subprocess.run(
        [sys.executable, "-c", GENERATE_EVERYTHING, order],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.slow
def test_shard_is_the_same_in_every_process():
    problems = draw_everything("1", "forwards")
    others = draw_everything("2", "backwards")
    assert len(problems) == 56
    for module, found in problems.items():
        assert found == others[module], module


def test_shard_does_not_depend_on_other_draws():
    first = generate_shard(GCD, "interpolate", 3, seed=1, count=10)
    generate_shard("numbers__is_prime", "train_easy", 0, seed=1, count=7)
    random.random()
    np.random.random()
    sympy_random.rng.random()
    assert generate_shard(GCD, "interpolate", 3, seed=1, count=10) == first
    shorter = generate_shard(GCD, "interpolate", 3, seed=1, count=4)
    assert shorter.problems == first.problems[:4]


@pytest.mark.parametrize(
    ("module", "split", "shard", "seed"),
    [
        (GCD, "interpolate", 3, 2),
        (GCD, "interpolate", 4, 1),
        (GCD, "train_hard", 3, 1),
        ("numbers__lcm_composed", "interpolate", 3, 1),
        # The parts do not run into each other.
        (GCD, "interpolate", 31, 1),
        (GCD, "interpolate", 3, 11),
    ],
)
def test_shards_differ(module, split, shard, seed):
    first = generate_shard(GCD, "interpolate", 3, seed=1, count=10)
    other = generate_shard(module, split, shard, seed, count=10)
    questions = [{q for q, _ in shard.problems} for shard in (first, other)]
    assert len(set.intersection(*questions)) < 3


def test_long_problem_is_generated_again(monkeypatch):
    # An answer is a number: 10 ** 30 has 31 digits.
    lengths = iter([(161, 1), (160, 29), (160, 30), (200, 90), (1, 1)])

    def problem():
        question, answer = next(lengths)
        return types.SimpleNamespace(question="q" * question, answer=10**answer)

    monkeypatch.setattr(
        shards, "problem_functions", lambda split: {"m": problem}
    )
    assert generate_shard("m", "interpolate", 0, 0, count=2) == Shard(
        [("q" * 160, "1" + "0" * 29), ("q", "10")]
    )


def draw_from(monkeypatch, events):
    """Lets the generator return answers, or raise errors, in turn."""
    events = iter(events)

    def problem():
        event = next(events)
        if isinstance(event, BaseException):
            raise event
        return types.SimpleNamespace(question="q", answer=event)

    monkeypatch.setattr(
        shards, "problem_functions", lambda split: {"m": problem}
    )


class Unprintable:
    def __str__(self):
        raise ZeroDivisionError


def test_raising_problem_is_generated_again(monkeypatch):
    errors = [AssertionError(), ValueError("no"), RecursionError()]
    draw_from(monkeypatch, [*errors, 1, Unprintable(), 2, KeyError("x"), 3])
    found = generate_shard("m", "interpolate", 0, 0, count=2)
    assert found == Shard([("q", "1"), ("q", "2")], raised=4)


def test_real_raising_problem_is_generated_again():
    where = ("comparison__kth_biggest_composed", "train_easy", 25, 7)
    first = generate_shard(*where)
    assert len(first.problems) == shards.PROBLEMS_PER_SHARD
    assert first.raised == 1
    generate_shard(GCD, "interpolate", 3, seed=1, count=3)
    assert generate_shard(*where) == first


def test_module_that_only_raises_is_refused(monkeypatch):
    draw_from(monkeypatch, [1, *[ValueError("two\nlines")] * 200])
    with pytest.raises(UsageError) as error:
        generate_shard("m", "interpolate", 0, 0)
    assert "module m (interpolate)" in str(error.value)
    assert "ValueError: two" in str(error.value)
    # A problem between, even a long one, resets the count.
    errors = [ValueError()] * 99
    draw_from(monkeypatch, [*errors, "1" * 31, *errors, 1, *errors, 2])
    assert generate_shard("m", "interpolate", 0, 0, count=2).raised == 3 * 99


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_error_of_the_process_is_raised(monkeypatch, error):
    draw_from(monkeypatch, [1, error, 2])
    with pytest.raises(type(error)):
        generate_shard("m", "interpolate", 0, 0, count=2)


def test_shard_is_read_as_written(tmp_path):
    path = tmp_path / "new" / "interpolate-000003.json"
    assert read_shard(path) is None
    write_shard(path, GCD, "interpolate", 3, 1)
    shard = read_shard(path)
    found = generate_shard(GCD, "interpolate", 3, seed=1)
    assert list(map(tuple, shard.problems)) == found.problems
    assert shard.raised == found.raised == 0
    assert len(shard.problems) == shards.PROBLEMS_PER_SHARD
    assert list(path.parent.iterdir()) == [path]
    whole = path.read_bytes()
    for damaged in (b"", whole[:-9], bytes(len(whole)), b"null", b"[1]"):
        path.write_bytes(damaged)
        assert read_shard(path) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "split",
    [
        "train_easy",
        "interpolate",
        pytest.param("extrapolate", marks=pytest.mark.exhaustive),
    ],
)
def test_every_module_draws_problems_of_the_vocabulary(split):
    tokenizer = CharacterTokenizer()
    for module in problem_functions(split):
        problems = generate_shard(module, split, 0, seed=1, count=1).problems
        for question, answer in problems:
            assert question
            assert answer
            tokenizer.encode(question + answer)


class Fatal:
    """Ends the process that receives it."""

    def __reduce__(self):
        return os._exit, (1,)


def test_death_of_a_drawing_process_names_the_flag():
    with pytest.raises(UsageError) as error, generator_processes(1) as generate:
        generate([(Fatal(), GCD)])
    assert error.value.field == "num_workers"

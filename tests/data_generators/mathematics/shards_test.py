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
from tpt_keras.data_generators.mathematics.deepmind import problem_functions
from tpt_keras.data_generators.mathematics.shards import Shard
from tpt_keras.data_generators.mathematics.shards import draw_shard
from tpt_keras.data_generators.mathematics.shards import drawing_processes
from tpt_keras.data_generators.mathematics.shards import read_shard
from tpt_keras.data_generators.mathematics.shards import write_shard
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

ROOT = pathlib.Path(__file__).parents[3]
GCD = "numbers__gcd_composed"
DRAW_EVERYTHING = """
import json, sys
from tpt_keras.data_generators.mathematics.modules import MODULES
from tpt_keras.data_generators.mathematics.shards import draw_shard

names = list(MODULES)
if sys.argv[1] == "backwards":
    names.reverse()
print(json.dumps({
    module: draw_shard(module, "train_hard", 5, seed=2, count=1)
    for module in names
}))
"""


def draw_everything(hash_seed, order):
    process = subprocess.run(
        [sys.executable, "-c", DRAW_EVERYTHING, order],
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
    for module, drawn in problems.items():
        assert drawn == others[module], module


def test_shard_does_not_depend_on_other_draws():
    first = draw_shard(GCD, "interpolate", 3, seed=1, count=10)
    draw_shard("numbers__is_prime", "train_easy", 0, seed=1, count=7)
    random.random()
    np.random.random()
    sympy_random.rng.random()
    assert draw_shard(GCD, "interpolate", 3, seed=1, count=10) == first
    shorter = draw_shard(GCD, "interpolate", 3, seed=1, count=4)
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
    first = draw_shard(GCD, "interpolate", 3, seed=1, count=10)
    other = draw_shard(module, split, shard, seed, count=10)
    questions = [{q for q, _ in shard.problems} for shard in (first, other)]
    assert len(set.intersection(*questions)) < 3


def test_long_problem_is_drawn_again(monkeypatch):
    # An answer is a number: 10 ** 30 has 31 digits.
    lengths = iter([(161, 1), (160, 29), (160, 30), (200, 90), (1, 1)])

    def draw():
        question, answer = next(lengths)
        return types.SimpleNamespace(question="q" * question, answer=10**answer)

    monkeypatch.setattr(shards, "problem_functions", lambda split: {"m": draw})
    assert draw_shard("m", "interpolate", 0, 0, count=2) == Shard(
        [("q" * 160, "1" + "0" * 29), ("q", "10")]
    )


def draw_from(monkeypatch, events):
    """Lets the generator return answers, or raise errors, in turn."""
    events = iter(events)

    def draw():
        event = next(events)
        if isinstance(event, BaseException):
            raise event
        return types.SimpleNamespace(question="q", answer=event)

    monkeypatch.setattr(shards, "problem_functions", lambda split: {"m": draw})


class Unprintable:
    def __str__(self):
        raise ZeroDivisionError


def test_raising_problem_is_drawn_again(monkeypatch):
    errors = [AssertionError(), ValueError("no"), RecursionError()]
    draw_from(monkeypatch, [*errors, 1, Unprintable(), 2, KeyError("x"), 3])
    drawn = draw_shard("m", "interpolate", 0, 0, count=2)
    assert drawn == Shard([("q", "1"), ("q", "2")], raised=4)


def test_real_raising_problem_is_drawn_again():
    where = ("comparison__kth_biggest_composed", "train_easy", 25, 7)
    first = draw_shard(*where)
    assert len(first.problems) == shards.PROBLEMS_PER_SHARD
    assert first.raised == 1
    draw_shard(GCD, "interpolate", 3, seed=1, count=3)
    assert draw_shard(*where) == first


def test_module_that_only_raises_is_refused(monkeypatch):
    draw_from(monkeypatch, [1, *[ValueError("two\nlines")] * 200])
    with pytest.raises(UsageError) as error:
        draw_shard("m", "interpolate", 0, 0)
    assert "module m (interpolate)" in str(error.value)
    assert "ValueError: two" in str(error.value)
    # A problem between, even a long one, resets the count.
    errors = [ValueError()] * 99
    draw_from(monkeypatch, [*errors, "1" * 31, *errors, 1, *errors, 2])
    assert draw_shard("m", "interpolate", 0, 0, count=2).raised == 3 * 99


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_error_of_the_process_is_raised(monkeypatch, error):
    draw_from(monkeypatch, [1, error, 2])
    with pytest.raises(type(error)):
        draw_shard("m", "interpolate", 0, 0, count=2)


def test_shard_is_read_as_written(tmp_path):
    path = tmp_path / "new" / "interpolate-000003.json"
    assert read_shard(path) is None
    write_shard(path, GCD, "interpolate", 3, 1)
    shard = read_shard(path)
    drawn = draw_shard(GCD, "interpolate", 3, seed=1)
    assert list(map(tuple, shard.problems)) == drawn.problems
    assert shard.raised == drawn.raised == 0
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
        problems = draw_shard(module, split, 0, seed=1, count=1).problems
        for question, answer in problems:
            assert question
            assert answer
            tokenizer.encode(question + answer)


class Fatal:
    """Ends the process that receives it."""

    def __reduce__(self):
        return os._exit, (1,)


def test_death_of_a_drawing_process_names_the_flag():
    with pytest.raises(UsageError) as error, drawing_processes(1) as draw:
        draw([(Fatal(), GCD)])
    assert error.value.field == "num_workers"

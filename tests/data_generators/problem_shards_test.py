import errno
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

from tpt_keras.data_generators import problem_shards
from tpt_keras.data_generators.problem_shards import draw_problems
from tpt_keras.data_generators.problem_shards import write_shard

ROOT = pathlib.Path(__file__).parent.parent.parent
GCD = "numbers__gcd_composed"
DRAW_EVERYTHING = """
import json, sys
from tpt_keras.data_generators import mathematics_modules
from tpt_keras.data_generators.problem_shards import draw_problems

modules = list(mathematics_modules.MODULES)
if sys.argv[1] == "backwards":
    modules.reverse()
print(json.dumps({
    module: draw_problems(module, "train_hard", 5, seed=2, count=3)
    for module in modules
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
def test_a_shard_is_the_same_in_every_process():
    problems = draw_everything("1", "forwards")
    others = draw_everything("2", "backwards")
    assert len(problems) == 56
    for module, drawn in problems.items():
        assert drawn == others[module], module


def test_a_shard_does_not_depend_on_other_draws():
    first = draw_problems(GCD, "interpolate", 3, seed=1, count=10)
    draw_problems("numbers__is_prime", "train_easy", 0, seed=1, count=7)
    random.random()
    np.random.random()
    sympy_random.rng.random()
    assert draw_problems(GCD, "interpolate", 3, seed=1, count=10) == first
    # Of a shorter shard as of a longer one.
    assert draw_problems(GCD, "interpolate", 3, seed=1, count=4) == first[:4]


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
    first = draw_problems(GCD, "interpolate", 3, seed=1, count=10)
    other = draw_problems(module, split, shard, seed, count=10)
    assert len({q for q, _ in first} & {q for q, _ in other}) < 3


def test_problems_that_are_too_long_are_drawn_again(monkeypatch):
    lengths = iter([(161, 1), (160, 30), (160, 31), (200, 90), (1, 1)])

    def draw():
        question, answer = next(lengths)
        return types.SimpleNamespace(question="q" * question, answer=10**answer)

    monkeypatch.setattr(
        problem_shards, "problem_functions", lambda split: {"m": draw}
    )
    # An answer is a number: 10 ** 30 has 31 digits.
    with pytest.raises(StopIteration):
        draw_problems("m", "interpolate", 0, 0, count=2)
    lengths = iter([(161, 1), (160, 29), (160, 30), (200, 90), (1, 1)])
    assert draw_problems("m", "interpolate", 0, 0, count=2) == [
        ("q" * 160, "1" + "0" * 29),
        ("q", "10"),
    ]


def test_write_shard(tmp_path):
    path = tmp_path / "new" / "interpolate-000003.json"
    write_shard(str(path), GCD, "interpolate", 3, 1)
    problems = [tuple(problem) for problem in json.loads(path.read_text())]
    assert problems == draw_problems(GCD, "interpolate", 3, seed=1)
    assert len(problems) == problem_shards.PROBLEMS_PER_SHARD
    assert list(path.parent.iterdir()) == [path]


def test_a_shard_is_whole_or_not_there(tmp_path, monkeypatch):
    path = tmp_path / "shard.json"
    write_text = pathlib.Path.write_text

    def disk_full(self, text):
        write_text(self, text[:50])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "write_text", disk_full)
        with pytest.raises(OSError, match="No space left"):
            write_shard(path, GCD, "interpolate", 3, 1)
    assert not path.exists()
    # What it left is not taken for a shard.
    assert not list(tmp_path.glob("*.json"))
    write_shard(path, GCD, "interpolate", 3, 1)
    assert len(json.loads(path.read_text())) == 100

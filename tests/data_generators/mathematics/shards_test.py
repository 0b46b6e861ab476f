import builtins
import functools
import importlib.util
import json
import os
import random
import types

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.experiments.command import run_python
from tpt_keras.data_generators.mathematics import shards
from tpt_keras.data_generators.mathematics.archive import EXTRAPOLATION_MODULES
from tpt_keras.data_generators.mathematics.archive import MODULES
from tpt_keras.data_generators.mathematics.archive import TRAIN_SPLITS
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

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
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    result = run_python(
        "-c", GENERATE_EVERYTHING, order, env=environment
    ).succeeded()
    return json.loads(result.stdout)


@pytest.mark.slow
def test_shard_is_the_same_in_every_process():
    problems = draw_everything("1", "forwards")
    others = draw_everything("2", "backwards")
    assert len(problems) == 56
    for module, found in problems.items():
        assert found == others[module], module


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
    first = shards.generate_shard(GCD, "interpolate", 3, seed=1, count=10)
    other = shards.generate_shard(module, split, shard, seed, count=10)
    questions = [{q for q, _ in shard.problems} for shard in (first, other)]
    assert len(set.intersection(*questions)) < 3


def draw_from(monkeypatch, events):
    """Lets the generator return answers, or raise errors, in turn.

    A pair is a question and its answer.
    """
    events = iter(events)

    def problem():
        event = next(events)
        if isinstance(event, BaseException):
            raise event
        question, answer = event if isinstance(event, tuple) else ("q", event)
        return types.SimpleNamespace(question=question, answer=answer)

    monkeypatch.setattr(
        shards, "problem_functions", lambda split: {"m": problem}
    )


def test_long_problem_is_generated_again(monkeypatch):
    # An answer is a number: 10 ** 30 has 31 digits.
    lengths = [(161, 1), (160, 29), (160, 30), (200, 90), (1, 1)]
    draw_from(monkeypatch, [("q" * q, 10**a) for q, a in lengths])
    found = shards.generate_shard("m", "interpolate", 0, 0, count=2)
    assert found == shards.Shard([("q" * 160, "1" + "0" * 29), ("q", "10")])


class Unprintable:
    def __str__(self):
        raise ZeroDivisionError


def test_raising_problem_is_generated_again(monkeypatch):
    errors = [AssertionError(), ValueError("no"), RecursionError()]
    draw_from(monkeypatch, [*errors, 1, Unprintable(), 2, KeyError("x"), 3])
    found = shards.generate_shard("m", "interpolate", 0, 0, count=2)
    assert found == shards.Shard([("q", "1"), ("q", "2")], raised=4)


def test_real_raising_problem_is_generated_again():
    where = ("comparison__kth_biggest_composed", "train_easy", 25, 7)
    first = shards.generate_shard(*where)
    assert len(first.problems) == shards.PROBLEMS_PER_SHARD
    assert first.raised == 1
    shards.generate_shard(GCD, "interpolate", 3, seed=1, count=3)
    assert shards.generate_shard(*where) == first


def test_module_without_new_problems_is_refused(monkeypatch):
    monkeypatch.setattr(shards, "_MOST_IN_A_ROW", 100)
    draw_from(monkeypatch, [1, *[ValueError("two\nlines")] * 100])
    with pytest.raises(UsageError) as error:
        shards.generate_shard("m", "interpolate", 0, 0)
    assert "module m (interpolate)" in str(error.value)
    assert "ValueError: two" in str(error.value)
    # A problem between, even a long one, resets the count.
    errors = [ValueError()] * 99
    draw_from(monkeypatch, [*errors, "1" * 31, *errors, 1, *errors, 2])
    found = shards.generate_shard("m", "interpolate", 0, 0, count=2)
    assert found.raised == 3 * 99
    draw_from(monkeypatch, [1] * 100)
    excluded = {shards.question_key("q")}
    with pytest.raises(UsageError):
        shards.generate_shard("m", "train_easy", 0, 0, excluded=excluded)


@pytest.mark.parametrize("error", [MemoryError(), KeyboardInterrupt()])
def test_error_of_the_process_is_raised(monkeypatch, error):
    draw_from(monkeypatch, [1, error, 2])
    with pytest.raises(type(error)):
        shards.generate_shard("m", "interpolate", 0, 0, count=2)


def test_shard_is_generated_unless_its_file_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "interpolate-000003.json"
    described = (GCD, "interpolate", 3, 1)
    shard = shards.generate_shard(*described)
    assert len(shard.problems) == shards.PROBLEMS_PER_SHARD
    generated = []
    monkeypatch.setattr(
        shards,
        "generate_shard",
        lambda *which: generated.append(which) or shard,
    )
    for content in ("", '{"problems": [["What', "\0", "null", "[1]"):
        path.write_text(content)
        assert shards.stored_shard(path, *described) == shard
        read = shards.stored_shard(path, *described)
        assert list(map(tuple, read.problems)) == shard.problems
        assert read.raised == shard.raised == 0
        assert generated.pop() == described
        assert not generated
    assert list(tmp_path.iterdir()) == [path]


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
    for module in shards.problem_functions(split):
        shard = shards.generate_shard(module, split, 0, seed=1, count=1)
        for question, answer in shard.problems:
            assert question
            assert answer
            tokenizer.encode(question + answer)


def test_the_names_are_the_generators():
    for split in (*TRAIN_SPLITS, "interpolate"):
        assert tuple(shards.problem_functions(split)) == MODULES
    assert tuple(shards.problem_functions("extrapolate")) == tuple(
        EXTRAPOLATION_MODULES.values()
    )
    assert (len(MODULES), len(EXTRAPOLATION_MODULES)) == (56, 15)
    for module, extrapolation in EXTRAPOLATION_MODULES.items():
        assert module in MODULES
        assert extrapolation.startswith(module)


def test_nothing_outside_the_generator_is_patched():
    shards.load_modules()
    assert "object" not in vars(np)
    assert not hasattr(np.ndarray, "itemset")
    assert type(np.zeros(2)) is np.ndarray
    assert set is builtins.set is type({1})
    assert random.randint.__self__ is random._inst


@functools.cache
def unpatched(name):
    """Executes a module again, as it is in its file."""
    module = importlib.util.module_from_spec(importlib.util.find_spec(name))
    module.__spec__.loader.exec_module(module)
    return module


@hypothesis.given(
    st.lists(st.integers(1, 20), min_size=3, max_size=5),
    st.lists(st.tuples(*[st.integers(-1, 5)] * 3), max_size=9, unique=True),
)
def test_a_probability_is_that_of_the_generator(weights, sequences):
    shards.load_modules()
    from mathematics_dataset.util import probability

    original = unpatched("mathematics_dataset.util.probability")
    found, expected = (
        module.SampleWithoutReplacementSpace(
            dict(enumerate(weights)), 3
        ).probability(module.SequenceEvent(sequences))
        for module in (probability, original)
    )
    assert original.SampleWithoutReplacementSpace.probability is not (
        probability.SampleWithoutReplacementSpace.probability
    )
    assert found == expected
    assert str(found) == str(expected)


@hypothesis.settings(max_examples=20)
@hypothesis.given(st.lists(st.tuples(*[st.integers(-3, 3)] * 3), max_size=4))
def test_a_degree_is_that_of_the_generator(terms):
    shards.load_modules()
    import sympy
    from mathematics_dataset.sample import polynomials

    original = unpatched("mathematics_dataset.sample.polynomials")
    x, y = sympy.symbols("x y")
    # With brackets, and with terms that cancel each other.
    polynomial = sum(c * (x + a) ** abs(b) * (y - a) for a, b, c in terms)
    for variable in (x, y):
        found, expected = (
            module._degree_of_variable(polynomial, variable)
            for module in (polynomials, original)
        )
        assert found == expected


@hypothesis.given(
    st.lists(
        st.one_of(st.integers(-3, 3), st.fractions(-2, 2, max_denominator=5)),
        min_size=12,
        max_size=12,
    ),
)
def test_a_polynomial_is_that_of_the_generator(values):
    shards.load_modules()
    import sympy
    from mathematics_dataset.sample import polynomials
    from mathematics_dataset.util import composition

    values = [sympy.Rational(v.numerator, v.denominator) for v in values]
    coefficients = np.array(values, dtype=object).reshape(4, 3)
    variables = sympy.symbols("x y")
    found = []
    for module in (composition.polynomials, polynomials):
        random.seed(0)
        polynomial = module.coefficients_to_polynomial(coefficients, variables)
        found.append((polynomial.sympy(), random.random()))
    assert composition.polynomials is not polynomials
    assert found[0] == found[1]
    assert str(found[0]) == str(found[1])


@pytest.mark.parametrize("coprime_to", [1, 6, 35])
def test_an_integer_is_that_of_the_generator(coprime_to):
    shards.load_modules()
    from mathematics_dataset.sample import number

    original = unpatched("mathematics_dataset.sample.number")
    found = []
    arguments = {"signed": True, "coprime_to": coprime_to}
    for module in (number, original):
        random.seed(0)
        found.append([module.integer(2.5, **arguments) for _ in range(50)])
    assert number.sympy.gcd is not original.sympy.gcd
    assert found[0] == found[1]
    assert [*map(type, found[0])] == [*map(type, found[1])]


def test_what_the_generator_misses_is_restored():
    shards.load_modules()
    from mathematics_dataset.modules import numbers
    from mathematics_dataset.sample import polynomials
    from sympy.solvers.diophantine import base_solution_linear

    x, y = base_solution_linear(7, 3, 5)
    assert 3 * x + 5 * y == 7
    assert numbers.random.randint(3.0, 3.0) == 3
    assert numbers.random.uniform(3.0, 3.0) == 3.0
    assert polynomials.np.object is object
    assert polynomials.np.prod([2, 3]) == 6
    for make in (polynomials.np.zeros, polynomials.np.empty):
        array = make((2, 2), dtype=object)
        array.itemset((1, 0), 7)
        assert array[1, 0] == 7

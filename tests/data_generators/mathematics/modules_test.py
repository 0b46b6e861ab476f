import builtins
import operator
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpt_keras.data_generators.mathematics import modules
from tpt_keras.data_generators.mathematics.modules import EXTRAPOLATION_MODULES
from tpt_keras.data_generators.mathematics.modules import MODULES
from tpt_keras.data_generators.mathematics.modules import SPLITS
from tpt_keras.data_generators.mathematics.modules import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.modules import load_modules
from tpt_keras.data_generators.mathematics.modules import problem_functions
from tpt_keras.data_generators.mathematics.modules import select_modules
from tpt_keras.data_generators.mathematics.shards import draw_shard
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

# They draw one to four problems a second.
SLOWEST = (
    "comparison__sort_more",
    "probability__swr_p_level_set_more_samples",
    "probability__swr_p_sequence_more_samples",
)

OrderedSet = modules._OrderedSet
ITEMS = st.lists(st.integers(0, 9))


@pytest.mark.slow
@pytest.mark.parametrize("split", SPLITS)
def test_every_module_draws_problems_of_the_vocabulary(split):
    tokenizer = CharacterTokenizer()
    for module in problem_functions(split):
        count = 1 if module in SLOWEST else 4
        problems = draw_shard(module, split, 0, seed=1, count=count).problems
        assert len(problems) == count
        for question, answer in problems:
            assert question
            assert answer
            tokenizer.encode(question + answer)


def test_the_names_are_the_generators():
    for split in (*TRAIN_SPLITS, "interpolate"):
        assert tuple(problem_functions(split)) == MODULES
    assert tuple(problem_functions("extrapolate")) == tuple(
        EXTRAPOLATION_MODULES
    )
    assert (len(MODULES), len(EXTRAPOLATION_MODULES)) == (56, 15)


def test_an_extrapolation_module_extends_the_module_of_its_name():
    for extrapolation, module in EXTRAPOLATION_MODULES.items():
        assert module in MODULES
        assert extrapolation.startswith(module)
    assert len(set(EXTRAPOLATION_MODULES.values())) == 15


def test_the_names_are_the_stock_datasets():
    from tensorflow_datasets.datasets.math_dataset import (
        math_dataset_dataset_builder as stock,
    )

    assert {config.name for config in stock.Builder.BUILDER_CONFIGS} == set(
        MODULES
    )


def test_a_harder_split_has_longer_numbers():
    def mean_digits(split, module="arithmetic__add_or_sub"):
        problems = draw_shard(module, split, 0, seed=0).problems
        return np.mean([sum(map(str.isdigit, q)) for q, _ in problems])

    digits = [mean_digits(split) for split in TRAIN_SPLITS]
    digits.append(mean_digits("extrapolate", "arithmetic__add_or_sub_big"))
    assert digits == sorted(digits)
    assert digits[0] < 0.7 * digits[2]


def test_nothing_outside_the_generator_is_patched():
    load_modules()
    assert "object" not in vars(np)
    assert not hasattr(np.ndarray, "itemset")
    assert type(np.zeros(2)) is np.ndarray
    assert set is builtins.set is type({1})
    assert random.randint.__self__ is random._inst


def test_what_the_generator_misses_is_restored():
    load_modules()
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


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["all"], MODULES),
        (["*"], MODULES),
        (["numbers__gcd"], ("numbers__gcd",)),
        (
            ["numbers__g*", "algebra__linear_?d", "numbers__gcd"],
            (
                "algebra__linear_1d",
                "algebra__linear_2d",
                "numbers__gcd",
                "numbers__gcd_composed",
            ),
        ),
    ],
)
def test_select_modules(patterns, names):
    assert select_modules(patterns) == names


@pytest.mark.parametrize("pattern", ["numbers__nothing", "x*", ""])
def test_select_modules_that_are_not_there(pattern):
    with pytest.raises(UsageError) as error:
        select_modules(["numbers__gcd", pattern])
    assert f"Unknown module {pattern!r}." in str(error.value)
    assert all(name in str(error.value) for name in MODULES)


def assert_same(ours, items):
    """It has the items, in this order of first insertion."""
    assert isinstance(ours, OrderedSet)
    assert list(ours) == list(dict.fromkeys(items))
    assert len(ours) == len(set(items))


@given(ITEMS, ITEMS)
def test_ordered_set_is_a_set(items, others):
    ours, theirs = OrderedSet(items), OrderedSet(others)
    assert_same(ours, items)
    assert_same(ours.copy(), items)
    assert_same(ours.union(others, [10]), [*items, *others, 10])
    assert_same(ours.difference(others), [i for i in items if i not in others])
    for operation in (
        operator.or_,
        operator.and_,
        operator.sub,
        operator.xor,
    ):
        assert set(operation(ours, theirs)) == operation(
            set(items), set(others)
        )
    for comparison in (operator.eq, operator.le, operator.lt):
        assert comparison(ours, theirs) == comparison(set(items), set(others))
    assert_same(ours, items)
    ours.update(others)
    assert_same(ours, items + others)


@given(ITEMS, st.integers(0, 9))
def test_ordered_set_adds_and_discards(items, item):
    ours = OrderedSet(items)
    assert (item in ours) == (item in items)
    ours.add(item)
    assert_same(ours, [*items, item])
    ours.discard(item)
    ours.discard(item)
    assert_same(ours, [i for i in items if i != item])
    with pytest.raises(KeyError):
        ours.remove(item)

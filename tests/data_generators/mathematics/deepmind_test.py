"""The replaced functions of DeepMind's generator."""

import builtins
import functools
import importlib.util
import pathlib
import random
import re

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tpt_keras.data_generators.mathematics import shards as deepmind
from tpt_keras.data_generators.mathematics.archive import EXTRAPOLATION_MODULES
from tpt_keras.data_generators.mathematics.archive import MODULES
from tpt_keras.data_generators.mathematics.archive import TRAIN_SPLITS
from tpt_keras.data_generators.mathematics.shards import load_modules
from tpt_keras.data_generators.mathematics.shards import problem_functions


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


def test_nothing_outside_the_generator_is_patched():
    load_modules()
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
    load_modules()
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


@hypothesis.given(st.lists(st.tuples(*[st.integers(-3, 3)] * 3), max_size=4))
def test_a_degree_is_that_of_the_generator(terms):
    load_modules()
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
    load_modules()
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


@pytest.mark.parametrize("scale_entropy", [0.0, 3.0])
@hypothesis.given(
    st.lists(
        st.one_of(st.integers(-9, 9), st.fractions(-3, 3, max_denominator=6)),
        min_size=1,
        max_size=5,
    )
)
def test_roots_give_the_coefficients_of_the_generator(scale_entropy, roots):
    load_modules()
    import sympy
    from mathematics_dataset.modules import algebra

    roots = [sympy.Rational(root.numerator, root.denominator) for root in roots]
    # Executed again, the whole module would register its samplers twice.
    source = pathlib.Path(algebra.__file__).read_text()
    (definition,) = re.findall(
        r"^def _polynomial_coeffs_with_roots.*?(?=^\S)", source, re.S | re.M
    )
    exec(definition, names := dict(vars(algebra)))
    original = names["_polynomial_coeffs_with_roots"]
    assert algebra._polynomial_coeffs_with_roots is (
        deepmind._coefficients_with_roots
    )
    found = []
    for function in (algebra._polynomial_coeffs_with_roots, original):
        random.seed(0)
        found.append((function(roots, scale_entropy), random.random()))
    assert found[0] == found[1]
    assert [*map(type, found[0][0])] == [*map(type, found[1][0])]


def test_an_operation_is_converted_to_sympy():
    load_modules()
    import sympy
    from mathematics_dataset.sample import ops

    x = sympy.Symbol("x")
    difference = ops.Sub(ops.Mul(2, ops.Pow(x, 3)), ops.Neg(ops.Div(1, 3)))
    expected = 2 * x**3 + sympy.Rational(1, 3)
    converter = importlib.import_module("sympy.core.sympify").converter
    assert converter[ops.Op](difference) == expected
    assert sympy.sympify(difference) == difference._sympy_() == expected


@pytest.mark.parametrize("coprime_to", [1, 6, 35])
def test_an_integer_is_that_of_the_generator(coprime_to):
    load_modules()
    from mathematics_dataset.sample import number

    original = unpatched("mathematics_dataset.sample.number")
    found = []
    for module in (number, original):
        random.seed(0)
        found.append(
            [
                module.integer(2.5, signed=True, coprime_to=coprime_to)
                for _ in range(50)
            ]
        )
    assert number.sympy.gcd is not original.sympy.gcd
    assert found[0] == found[1]
    assert list(map(type, found[0])) == list(map(type, found[1]))


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


def test_ordered_set_keeps_the_order_of_insertion():
    ours = deepmind._OrderedSet("cab")
    ours.add("d")
    ours.add("a")
    assert list(ours) == list("cabd")
    other = ours.copy()
    other.add("e")
    assert list(ours.union(other)) == list("cabde")
    assert list(other.difference(ours)) == ["e"]
    assert "b" in ours
    assert "e" not in ours
    assert len(ours) == 4

"""DeepMind's generator of problems, made to run today, and faster.

The package `mathematics_dataset` (1.0.1, the newest) is written for old
versions of Python, NumPy and SymPy.
"""

import collections
import functools
import importlib
import math
import random
import types

import numpy as np

from tpt_keras.data_generators.mathematics.modules import TRAIN_SPLITS


@functools.cache
def problem_functions(split):
    """Functions that make one random problem of a split, by their modules."""
    modules = load_modules()
    if split == "interpolate":
        areas = modules.test()
    elif split == "extrapolate":
        areas = modules.test_extra()
    else:
        level = TRAIN_SPLITS.index(split)
        areas = modules.train(functools.partial(_entropy_range, level))
    return {
        f"{area}__{name}": function
        for area, functions in sorted(areas.items())
        for name, function in sorted(functions.items())
    }


def _entropy_range(level, whole_range):
    """The third of a range of entropies that is difficulty `level`'s."""
    low, high = whole_range
    third = (high - low) / len(TRAIN_SPLITS)
    return (low + level * third, low + (level + 1) * third)


@functools.cache
def load_modules():
    """Imports DeepMind's generator and replaces some of its functions.

    What it misses is restored inside the package alone. Its compositions
    iterate over sets, whose order depends on the process; here they use sets in
    the order of insertion. Most of its time went into five functions, which
    here give the same results faster: probabilities, which were sums of
    thousands of SymPy's fractions, greatest common divisors, degrees of
    polynomials, sums of all terms of a polynomial, those of zero among them,
    and coefficients of a polynomial with given roots. SymPy is told how to
    convert an operation, which it otherwise finds out last.
    """
    diophantine = importlib.import_module("sympy.solvers.diophantine")
    if not hasattr(diophantine, "base_solution_linear"):
        # It moved one module down.
        moved = importlib.import_module("sympy.solvers.diophantine.diophantine")
        diophantine.base_solution_linear = moved.base_solution_linear
    modules = importlib.import_module("mathematics_dataset.modules.modules")
    import sympy
    from mathematics_dataset.modules import algebra
    from mathematics_dataset.modules import calculus
    from mathematics_dataset.modules import numbers
    from mathematics_dataset.sample import number
    from mathematics_dataset.sample import ops
    from mathematics_dataset.sample import polynomials
    from mathematics_dataset.util import composition
    from mathematics_dataset.util import probability

    # NumPy 1.24 removed `numpy.object`, and NumPy 2.0 `ndarray.itemset`.
    polynomials.np = _patched(
        np,
        object=object,
        zeros=lambda *args, **kwargs: np.zeros(*args, **kwargs).view(_Settable),
        empty=lambda *args, **kwargs: np.empty(*args, **kwargs).view(_Settable),
    )
    # Python 3.12 refuses whole floats.
    numbers.random = _patched(
        random, randint=lambda low, high: random.randint(int(low), int(high))
    )
    number.sympy = _patched(sympy, gcd=math.gcd)
    polynomials._degree_of_variable = _degree
    # These two ask a polynomial for nothing but its `sympy()`.
    calculus.polynomials = composition.polynomials = _patched(
        polynomials, coefficients_to_polynomial=_polynomial
    )
    algebra._polynomial_coeffs_with_roots = _coefficients_with_roots
    # A module, whose name is also that of a function.
    sympify = importlib.import_module("sympy.core.sympify")
    sympify.converter[ops.Op] = lambda operation: operation.sympy()
    probability.SampleWithoutReplacementSpace.probability = _probability
    composition.set = _OrderedSet
    composition._ALLOWED_SYMBOLS = _OrderedSet(
        sorted(composition._ALLOWED_SYMBOLS)
    )
    return modules


def _patched(module, **names):
    """A module like another one, with other values of some names."""
    patched = types.ModuleType(module.__name__)
    vars(patched).update(names, __getattr__=functools.partial(getattr, module))
    return patched


def _probability(space, event):
    """Probability of an event of a space without replacement."""
    import sympy

    whole = math.lcm(*(int(share.q) for share in space._weights.values()))
    weights = {
        item: int(share * whole) for item, share in space._weights.items()
    }
    # Sums of numerators by their denominators.
    sums = collections.Counter()
    for sequence in event.all_sequences():
        if len(sequence) != len(set(sequence)):
            continue
        numerator, denominator, left = 1, 1, whole
        for item in sequence:
            weight = weights.get(item, 0)
            if not weight:
                break
            numerator *= weight
            denominator *= left
            left -= weight
        else:
            sums[denominator] += numerator
    fractions = (
        sympy.Rational(numerator, denominator)
        for denominator, numerator in sums.items()
    )
    return sum(fractions, sympy.Integer(0))


def _degree(polynomial, variable):
    """Degree of a variable in a polynomial."""
    import sympy

    polynomial = sympy.expand(sympy.sympify(polynomial))
    if variable not in polynomial.free_symbols:
        return 0
    return sympy.degree(polynomial, variable)


def _polynomial(coefficients, variables):
    """A polynomial with the method `sympy`, made of its nonzero terms."""
    import sympy

    # The generator shuffles all terms, which takes random numbers.
    random.shuffle([None] * coefficients.size)
    terms = []
    for powers in np.argwhere(coefficients).tolist():
        factors = [v**power for v, power in zip(variables, powers) if power]
        terms.append(sympy.Mul(coefficients.item(*powers), *factors))
    return types.SimpleNamespace(sympy=lambda: sympy.Add(*terms))


def _coefficients_with_roots(roots, scale_entropy):
    """Coefficients of a polynomial with the given roots, in rising powers."""
    import sympy
    from mathematics_dataset.sample import number

    factors = [[-sympy.sympify(root), sympy.Integer(1)] for root in roots]
    coefficients = functools.reduce(np.convolve, factors)
    scale = 0 if scale_entropy > 0 else 1
    while scale == 0:
        scale = number.integer_or_rational(scale_entropy, signed=True)
    whole = math.lcm(*(int(each.q) for each in coefficients))
    return [each * scale * whole for each in coefficients]


class _Settable(np.ndarray):
    def itemset(self, index, value):
        self[index] = value


class _OrderedSet(dict):
    """A set that iterates in the order of insertion."""

    def __init__(self, items=()):
        super().__init__(dict.fromkeys(items))

    def add(self, item):
        self[item] = None

    def copy(self):
        return _OrderedSet(self)

    def union(self, other):
        return _OrderedSet([*self, *other])

    def difference(self, other):
        return _OrderedSet(item for item in self if item not in other)

"""The problem modules of DeepMind's `mathematics_dataset`, made to run today.

The package (1.0.1, the newest) was written for old versions of Python, NumPy
and SymPy. `load_modules` restores the missing parts inside the package alone:

- `sympy.solvers.diophantine.base_solution_linear`, which moved one module down;
- `numpy.object`, an alias that NumPy 1.24 removed;
- `numpy.ndarray.itemset`, a method that NumPy 2.0 removed;
- whole floats as arguments of `random.randint`, which Python 3.12 refuses.

It also makes the package deterministic. Its compositions iterate over sets of
strings and of objects, whose order depends on the process, not on the seed.
They use sets in the order of insertion instead.
"""

import collections.abc
import fnmatch
import functools
import importlib
import random
import types

import numpy as np

from tpt_keras.errors import check_choice

# Difficulties are thirds of a module's range of entropy.
TRAIN_SPLITS = ("train_easy", "train_medium", "train_hard")
EVALUATION_SPLITS = ("interpolate", "extrapolate")
SPLITS = TRAIN_SPLITS + EVALUATION_SPLITS

MODULES = (
    "algebra__linear_1d",
    "algebra__linear_1d_composed",
    "algebra__linear_2d",
    "algebra__linear_2d_composed",
    "algebra__polynomial_roots",
    "algebra__polynomial_roots_composed",
    "algebra__sequence_next_term",
    "algebra__sequence_nth_term",
    "arithmetic__add_or_sub",
    "arithmetic__add_or_sub_in_base",
    "arithmetic__add_sub_multiple",
    "arithmetic__div",
    "arithmetic__mixed",
    "arithmetic__mul",
    "arithmetic__mul_div_multiple",
    "arithmetic__nearest_integer_root",
    "arithmetic__simplify_surd",
    "calculus__differentiate",
    "calculus__differentiate_composed",
    "comparison__closest",
    "comparison__closest_composed",
    "comparison__kth_biggest",
    "comparison__kth_biggest_composed",
    "comparison__pair",
    "comparison__pair_composed",
    "comparison__sort",
    "comparison__sort_composed",
    "measurement__conversion",
    "measurement__time",
    "numbers__base_conversion",
    "numbers__div_remainder",
    "numbers__div_remainder_composed",
    "numbers__gcd",
    "numbers__gcd_composed",
    "numbers__is_factor",
    "numbers__is_factor_composed",
    "numbers__is_prime",
    "numbers__is_prime_composed",
    "numbers__lcm",
    "numbers__lcm_composed",
    "numbers__list_prime_factors",
    "numbers__list_prime_factors_composed",
    "numbers__place_value",
    "numbers__place_value_composed",
    "numbers__round_number",
    "numbers__round_number_composed",
    "polynomials__add",
    "polynomials__coefficient_named",
    "polynomials__collect",
    "polynomials__compose",
    "polynomials__evaluate",
    "polynomials__evaluate_composed",
    "polynomials__expand",
    "polynomials__simplify_power",
    "probability__swr_p_level_set",
    "probability__swr_p_sequence",
)

# Every extrapolation module and the training module that it extends.
EXTRAPOLATION_MODULES = {
    "algebra__polynomial_roots_big": "algebra__polynomial_roots",
    "arithmetic__add_or_sub_big": "arithmetic__add_or_sub",
    "arithmetic__add_sub_multiple_longer": "arithmetic__add_sub_multiple",
    "arithmetic__div_big": "arithmetic__div",
    "arithmetic__mixed_longer": "arithmetic__mixed",
    "arithmetic__mul_big": "arithmetic__mul",
    "arithmetic__mul_div_multiple_longer": "arithmetic__mul_div_multiple",
    "comparison__closest_more": "comparison__closest",
    "comparison__kth_biggest_more": "comparison__kth_biggest",
    "comparison__sort_more": "comparison__sort",
    "measurement__conversion": "measurement__conversion",
    "numbers__place_value_big": "numbers__place_value",
    "numbers__round_number_big": "numbers__round_number",
    "probability__swr_p_level_set_more_samples": (
        "probability__swr_p_level_set"
    ),
    "probability__swr_p_sequence_more_samples": "probability__swr_p_sequence",
}


class _ItemSettableArray(np.ndarray):
    def itemset(self, index, value):
        self[index] = value


class _OldNumpy(types.ModuleType):
    """NumPy with the names that the package needs."""

    object = object

    def __getattr__(self, name):
        return getattr(np, name)

    @staticmethod
    def zeros(*args, **kwargs):
        return np.zeros(*args, **kwargs).view(_ItemSettableArray)

    @staticmethod
    def empty(*args, **kwargs):
        return np.empty(*args, **kwargs).view(_ItemSettableArray)


class _OldRandom(types.ModuleType):
    """Python's `random` with a `randint` that takes whole floats."""

    def __getattr__(self, name):
        return getattr(random, name)

    @staticmethod
    def randint(low, high):
        return random.randint(int(low), int(high))


class _OrderedSet(collections.abc.MutableSet):
    """A set that iterates in the order of insertion."""

    def __init__(self, items=()):
        self._items = dict.fromkeys(items)

    def __contains__(self, item):
        return item in self._items

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)

    def add(self, item):
        self._items[item] = None

    def discard(self, item):
        self._items.pop(item, None)

    def copy(self):
        return _OrderedSet(self)

    def update(self, *others):
        for other in others:
            self._items.update(dict.fromkeys(other))

    def union(self, *others):
        result = self.copy()
        result.update(*others)
        return result

    def difference(self, other):
        return _OrderedSet(item for item in self if item not in other)


@functools.cache
def load_modules():
    """Imports the generator and restores what it needs.

    Returns:
        The module `mathematics_dataset.modules.modules`.
    """
    diophantine = importlib.import_module("sympy.solvers.diophantine")
    if not hasattr(diophantine, "base_solution_linear"):
        moved = importlib.import_module("sympy.solvers.diophantine.diophantine")
        diophantine.base_solution_linear = moved.base_solution_linear
    modules = importlib.import_module("mathematics_dataset.modules.modules")
    polynomials = importlib.import_module(
        "mathematics_dataset.sample.polynomials"
    )
    polynomials.np = _OldNumpy("numpy")
    numbers = importlib.import_module("mathematics_dataset.modules.numbers")
    numbers.random = _OldRandom("random")
    composition = importlib.import_module(
        "mathematics_dataset.util.composition"
    )
    composition._ALLOWED_SYMBOLS = _OrderedSet(
        sorted(composition._ALLOWED_SYMBOLS)
    )
    composition.set = _OrderedSet
    return modules


@functools.cache
def problem_functions(split):
    """The functions that draw one random problem of a split each.

    Args:
        split: One of `SPLITS`.

    Returns:
        Dict of module name (`"numbers__place_value"`) to function.
    """
    modules = load_modules()
    if split == "interpolate":
        return _flatten(modules.test())
    if split == "extrapolate":
        return _flatten(modules.test_extra())
    level = TRAIN_SPLITS.index(split)
    return _flatten(modules.train(functools.partial(_entropy_range, level)))


def select_modules(patterns):
    """Selects training modules by name or pattern.

    Args:
        patterns: Sequence of names, patterns such as `"numbers__*"`, or
            `"all"`.

    Returns:
        Sorted tuple of names.

    Raises:
        UsageError: If a pattern fits no module.
    """
    selected = set()
    for pattern in patterns:
        fitting = fnmatch.filter(MODULES, "*" if pattern == "all" else pattern)
        if not fitting:
            check_choice("module", pattern, MODULES)
        selected.update(fitting)
    return tuple(sorted(selected))


def _entropy_range(level, whole_range):
    """The third of a range of entropies that is difficulty `level`'s."""
    low, high = whole_range
    third = (high - low) / len(TRAIN_SPLITS)
    return (low + level * third, low + (level + 1) * third)


def _flatten(areas):
    return {
        f"{area}__{name}": function
        for area, functions in sorted(areas.items())
        for name, function in sorted(functions.items())
    }

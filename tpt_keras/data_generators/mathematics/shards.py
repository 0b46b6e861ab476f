"""DeepMind's generator, made to run today, and its problems in shards.

The package `mathematics_dataset` (1.0.1, the newest) is written for old
versions of Python, NumPy and SymPy. A shard's problems depend on the seed, the
module, the split and the shard's number alone, not on the process or on what it
generated before.
"""

import collections
import functools
import hashlib
import importlib
import json
import math
import random
import types
import typing

import numpy as np

from tpt_keras.data_generators.mathematics.archive import TRAIN_SPLITS
from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.tokenizers.character_tokenizer import MAX_ANSWER_LENGTH
from tpt_keras.tokenizers.character_tokenizer import MAX_QUESTION_LENGTH

# Small, because the slowest modules generate a few problems a second.
PROBLEMS_PER_SHARD = 100
# A module that fails so often without a problem between generates none at all.
_MOST_IN_A_ROW = 10_000


class Shard(typing.NamedTuple):
    """Pairs of question and answer that were generated together.

    `raised` counts the errors that the generator raised instead of problems.
    """

    problems: list
    raised: int = 0


def generate_shard(
    module, split, shard, seed, count=PROBLEMS_PER_SHARD, excluded=frozenset()
):
    """Generates one `Shard` of problems.

    A problem longer than the dataset allows is replaced by the next one, as in
    DeepMind's own script. So is a problem that is excluded, and one for which
    the generator raises an error, as most modules do once in a few million
    problems.

    Args:
        module: Name of a module of the split, such as
            `"numbers__place_value_big"` of `"extrapolate"`.
        split: One of `SPLITS`.
        shard: Number of the shard.
        seed: Seed of the dataset.
        count: Number of problems.
        excluded: Set of the `question_key`s of problems that are not taken.

    Raises:
        UsageError: If the module generates nothing but errors, or nothing but
            excluded problems.
    """
    make_problem = problem_functions(split)[module]
    _seed_everything(f"{seed}/{module}/{split}/{shard}")
    problems = []
    raised = in_a_row = 0
    while len(problems) < count:
        fault = None
        try:
            problem = make_problem()
            question, answer = str(problem.question), str(problem.answer)
            if excluded and question_key(question) in excluded:
                fault = "a problem that is held out"
        except MemoryError:
            raise  # other errors depend on the seed alone
        except Exception as error:
            raised += 1
            fault = f"{type(error).__name__}: {error}".split("\n")[0]
        in_a_row = in_a_row + 1 if fault else 0
        if in_a_row == _MOST_IN_A_ROW:
            raise UsageError(
                f"The generator of module {module} ({split}) made no new "
                f"problem in {in_a_row} attempts, at last {fault!r}. Leave the "
                "module out, hold out fewer, or take another seed."
            )
        if (
            not fault
            and len(question) <= MAX_QUESTION_LENGTH
            and len(answer) <= MAX_ANSWER_LENGTH
        ):
            problems.append((question, answer))
    return Shard(problems, raised)


def question_key(question):
    """Hashes a question to eight bytes: millions have to fit in memory."""
    return hashlib.blake2b(question.encode(), digest_size=8).digest()


def _seed_everything(text):
    from sympy.core import random as sympy_random

    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    random.seed(seed)
    np.random.seed(seed)
    sympy_random.seed(seed)


def stored_shard(path, *described):
    """Reads a `Shard` from its file, or generates it and writes the file.

    Takes the arguments of `generate_shard` after the path.
    """
    try:
        return Shard(**json.loads(path.read_bytes()))
    except (FileNotFoundError, TypeError, ValueError):
        shard = generate_shard(*described)  # it is missing or damaged
    # Thousands of them: waiting for the disk would take longer than all else.
    with whole_file(path, sync=False) as partial:
        partial.write_text(json.dumps(shard._asdict()))
    return shard


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

    Its compositions iterate over sets, whose order depends on the process; here
    they use sets in the order of insertion. Most of its time went into four
    functions, which here give the same results faster: probabilities, greatest
    common divisors, degrees of polynomials, and sums of a polynomial's terms.
    """
    diophantine = importlib.import_module("sympy.solvers.diophantine")
    if not hasattr(diophantine, "base_solution_linear"):
        # It moved one module down.
        moved = importlib.import_module("sympy.solvers.diophantine.diophantine")
        diophantine.base_solution_linear = moved.base_solution_linear
    modules = importlib.import_module("mathematics_dataset.modules.modules")
    import sympy
    from mathematics_dataset.modules import calculus
    from mathematics_dataset.modules import numbers
    from mathematics_dataset.sample import number
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

import collections
import itertools

import numpy as np
import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.data_generators.files import all_texts
from tests.data_generators.files import examples_of
from tests.data_generators.files import numbered_examples
from tests.refusals import refused
from tpt_keras.data_generators.examples import ArrayExamples
from tpt_keras.data_generators.examples import ExampleMixture
from tpt_keras.data_generators.examples import ExampleView
from tpt_keras.data_generators.examples import permute
from tpt_keras.data_generators.examples import question_keys
from tpt_keras.data_generators.examples import readable_examples
from tpt_keras.data_generators.examples import set_apart
from tpt_keras.models import PRESETS
from tpt_keras.tokenizers.character_tokenizer import CHARACTERS

TEXT = st.text(CHARACTERS, max_size=9)
SEEDS = st.tuples(st.integers(0, 2**40), st.integers(-1, 2**20))


def named(lengths):
    return [
        numbered_examples(length, chr(ord("a") + index), max_length=5)
        for index, length in enumerate(lengths)
    ]


@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=9), st.data())
def test_examples_read_back_in_any_order(pairs, data):
    examples = examples_of(pairs)
    place = st.integers(0, len(pairs) - 1)
    indices = data.draw(st.lists(place, max_size=12))
    expected = [pairs[index] for index in indices]
    assert examples.texts(indices) == expected
    assert examples.lengths(indices).tolist() == [
        [len(question), len(answer)] for question, answer in expected
    ]


def test_unknown_character_is_refused():
    with refused(part="'%'"):
        examples_of([("1 % 2", "1")])


def test_views_read_and_have_lengths():
    examples = numbered_examples(20)
    [rest], [part] = set_apart([examples], 9, seed=0)
    backwards = ExampleView(examples, np.arange(20)[::-1])
    for view in (ExampleMixture([part, rest], [9, 11]), backwards):
        assert sorted(all_texts(view)) == sorted(all_texts(examples))
        indices = [3, 19, 3]
        assert view.lengths(indices).tolist() == [
            [len(text) for text in pair] for pair in view.texts(indices)
        ]


@given(
    st.lists(st.lists(st.tuples(TEXT, TEXT)), min_size=1, max_size=3),
    st.integers(1, 9),
    st.integers(0, 2**32 - 1),
)
def test_questions_set_apart_are_on_no_other_side(parts, count, seed):
    kept, apart = set_apart([*map(examples_of, parts)], count, seed)
    apart = [dict(all_texts(part)) for part in apart]
    for pairs, kept_part, apart_part in zip(parts, kept, apart):
        assert len(apart_part) == min(count, len(dict(pairs)))
        assert set(apart_part.items()) <= set(pairs)
        # All others are kept, in their order.
        others = [p for p in pairs if not any(p[0] in part for part in apart)]
        assert all_texts(kept_part) == others


def test_part_depends_on_its_seed_and_is_random():
    examples = numbered_examples(1000)
    first, again, other = (
        set(all_texts(set_apart([examples], 100, seed)[1][0]))
        for seed in (0, 0, 1)
    )
    assert first == again
    # About a tenth is common by chance.
    assert len(first & other) < 30
    assert len(first & set(examples.texts(np.arange(100)))) < 30


@pytest.mark.parametrize("order", [1, -1])
def test_keys_of_questions_never_change(order):
    """A training resumes with the validation that it began with."""
    symbols = ["<pad>", "<start>", "<end>", *"1+2é日"][::order]
    pairs = [("1+2", "1"), ("日é", "2"), ("1+2", "2")] * 4000
    one, other = 5831055028719224600, 4151112734804306061
    keys = question_keys(examples_of(pairs, symbols), 0)
    assert keys.tolist() == [one, other, one] * 4000
    last = question_keys(examples_of(pairs, symbols), 2**32 - 1)
    assert last[1] == 5186580729140881032


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.floats(0.2, 5.0)),
        min_size=1,
        max_size=5,
    )
)
def test_weights_are_shares_of_a_mixture(pairs):
    lengths, weights = zip(*pairs)
    mixture = ExampleMixture(named(lengths), weights)
    counts = collections.Counter(q for q, _ in all_texts(mixture))
    assert len(counts) == sum(lengths)
    per_weight = max((le / w for le, w in pairs), default=0)
    by_name = collections.defaultdict(list)
    for question, times in counts.items():
        by_name[question[0]].append(times)
    for name, (length, weight) in zip("abcde", zip(lengths, weights)):
        if length:
            share = sum(by_name[name])
            assert share == pytest.approx(weight * per_weight, abs=0.51)
    # Every part is stretched evenly.
    for times in by_name.values():
        assert max(times) - min(times) <= 1


def test_mixture_without_weights_joins_equal_parts():
    parts = named([7, 7, 0])
    joined = [pair for part in parts for pair in all_texts(part)]
    mixture = ExampleMixture(parts)
    assert all_texts(mixture) == joined
    assert mixture.texts([9, 0, 0]) == [joined[9], joined[0], joined[0]]
    assert mixture.texts([]) == []
    assert mixture.lengths([]).shape == (0, 2)
    assert len(ExampleMixture(named([0, 0]))) == 0


def test_readable_examples_fit_the_model():
    config = PRESETS["tp_transformer_tiny"].replace(
        vocabulary=("<pad>", "<start>", "<end>", *"12a"),
        max_question_length=3,
        max_answer_length=2,
    )
    pairs = [
        ("1a2", "12"),
        ("1111", "1"),
        ("1", "222"),
        ("1+2", "1"),
        ("a", "b"),
    ]
    readable = readable_examples(examples_of(pairs), config)
    assert all_texts(readable) == pairs[:1]
    whole = examples_of(pairs[:1])
    known = ArrayExamples.from_texts(pairs[:1], config.vocabulary)
    assert len(readable_examples(whole, config)) == 1
    assert readable_examples(known, config) is known


def whole(count, seed):
    return permute(np.arange(count), count, seed)


# Counts around powers of two and squares.
EDGES = [
    count + offset
    for power in range(8, 10)
    for count in (4**power, 2 * 4**power, (2**power + 1) ** 2)
    for offset in (-1, 0, 1)
]


@pytest.mark.parametrize("count", [*EDGES, 4**10 + 1])
def test_permutation_is_a_bijection_at_the_edges(count):
    assert np.all(np.bincount(whole(count, (0, 0)), minlength=count) == 1)


@settings(max_examples=20)
@given(st.integers(0, 2 * 10**6), SEEDS)
def test_permutation_is_a_bijection(count, seed):
    permuted = whole(count, seed)
    assert permuted.dtype == np.int64
    assert np.all(np.bincount(permuted, minlength=count) == 1)


@given(st.integers(1, 2**62), SEEDS, st.data())
@example(2**62, (0, 0), None)
@example(2**40 + 1, (0, 0), None)
def test_permuted_place_does_not_depend_on_other_positions(count, seed, data):
    positions = [0, count // 2, count - 1]
    if data is not None:
        place = st.integers(0, count - 1)
        positions = data.draw(st.lists(place, min_size=1, max_size=9))
    permuted = permute(np.array(positions), count, seed)
    assert permuted.min() >= 0
    assert permuted.max() < count
    assert len(set(permuted.tolist())) == len(set(positions))
    for position, place in zip(positions, permuted):
        assert permute(np.array([position]), count, seed) == [place]


def excess(table):
    """The excess of a table's chi-square in standard deviations."""
    mean, freedom = table.mean(), table.size - 1
    chi_square = ((table - mean) ** 2 / mean).sum()
    return (chi_square - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("count", [10_000, 65_537, 2**40 + 1])
@pytest.mark.parametrize("seed", [(0, 0), (7, -1)])
def test_permutation_shuffles(count, seed):
    positions = np.arange(min(count, 50_000))
    permuted = permute(positions, count, seed)
    assert np.sum(permuted == positions) < 10
    assert np.sum(np.abs(np.diff(permuted)) == 1) < 20
    # Independent of the position, of the place before and of another seed.
    other = permute(positions, count, (seed[0] + 1, seed[1]))
    for one, two in (
        (positions, permuted),
        (permuted[:-1], permuted[1:]),
        (permuted, other),
    ):
        table, _, _ = np.histogram2d(one, two, bins=20)
        assert excess(table) < 6
    for modulus in (2, 3, 16):
        assert excess(np.bincount(permuted % modulus)) < 6


def test_every_order_of_few_occurs():
    orders = list(itertools.permutations(range(4)))
    drawn = [tuple(whole(4, (seed, 0)).tolist()) for seed in range(2400)]
    assert excess(np.array([drawn.count(order) for order in orders])) < 6


def test_permutation_never_changes():
    """A training resumes in the order that it began with."""
    assert whole(10, (0, 0)).tolist() == [9, 1, 5, 6, 4, 8, 2, 3, 7, 0]
    seed = (np.int64(3), -1)
    assert whole(10, seed).tolist() == [3, 5, 8, 0, 7, 9, 1, 2, 6, 4]
    some = permute([0, 1, 2**40], 2**40 + 1, (1, 2))
    assert some.tolist() == [949156872626, 944819303731, 336605591395]
    grid = np.arange(12).reshape(3, 4)
    permuted = permute(grid.T, 20, (0, 0))
    np.testing.assert_array_equal(permuted, permute(grid, 20, (0, 0)).T)

import itertools

import numpy as np
import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tpt_keras.data_generators.permutation import permute

SEEDS = st.tuples(st.integers(0, 2**40), st.integers(-1, 2**20))
# Where powers of two, of four and squares lie between.
EDGES = [
    count + offset
    for power in range(8, 10)
    for count in (4**power, 2 * 4**power, (2**power + 1) ** 2)
    for offset in (-1, 0, 1)
]


def whole(count, seed):
    return permute(np.arange(count), count, seed)


@given(st.integers(0, 3000), SEEDS)
def test_it_is_a_bijection(count, seed):
    permuted = whole(count, seed)
    assert permuted.dtype == np.int64
    np.testing.assert_array_equal(np.sort(permuted), np.arange(count))


@pytest.mark.parametrize("count", [*EDGES, 4**10 + 1, 4**11 + 1])
def test_it_is_a_bijection_at_the_edges(count):
    assert np.all(np.bincount(whole(count, (0, 0)), minlength=count) == 1)


@settings(max_examples=20)
@given(st.integers(3001, 2 * 10**6), SEEDS)
def test_it_is_a_bijection_of_many(count, seed):
    assert np.all(np.bincount(whole(count, seed), minlength=count) == 1)


@given(st.integers(1, 2**62), SEEDS, st.data())
@example(2**62, (0, 0), None)
@example(2**40 + 1, (0, 0), None)
def test_a_position_does_not_depend_on_the_others(count, seed, data):
    if data is None:
        positions = [0, count // 2, count - 2, count - 1]
    else:
        positions = data.draw(
            st.lists(
                st.integers(0, count - 1), min_size=1, max_size=9, unique=True
            )
        )
    permuted = permute(np.array(positions), count, seed)
    assert permuted.min() >= 0
    assert permuted.max() < count
    assert len(set(permuted.tolist())) == len(positions)
    for position, place in zip(positions, permuted):
        assert permute(np.array([position]), count, seed) == [place]


def test_the_shape_is_kept():
    assert permute(3, 9, (0, 0)).shape == ()
    grid = np.arange(12).reshape(3, 4)
    permuted = permute(grid.T, 20, (0, 0))
    np.testing.assert_array_equal(permuted, permute(grid, 20, (0, 0)).T)


def excess(table):
    """How many standard deviations a table's chi-square is too large."""
    mean, freedom = table.mean(), table.size - 1
    chi_square = ((table - mean) ** 2 / mean).sum()
    return (chi_square - freedom) / np.sqrt(2 * freedom)


@pytest.mark.parametrize("count", [10_000, 65_537, 2**40 + 1])
@pytest.mark.parametrize("seed", [(0, 0), (7, -1)])
def test_it_shuffles(count, seed):
    positions = np.arange(min(count, 50_000))
    permuted = permute(positions, count, seed)
    # A random permutation has one fixed point on average, no long runs and no
    # correlation of place and position.
    assert np.sum(permuted == positions) < 10
    assert np.sum(np.abs(np.diff(permuted)) == 1) < 20
    assert abs(np.corrcoef(permuted, positions)[0, 1]) < 0.05
    # Places are independent of positions, of the place before, and of the
    # places under another seed.
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


def test_every_order_of_few():
    orders = list(itertools.permutations(range(4)))
    drawn = [tuple(whole(4, (seed, 0)).tolist()) for seed in range(2400)]
    counts = np.array([drawn.count(order) for order in orders])
    assert counts.sum() == 2400
    assert excess(counts) < 6


def test_seeds_matter():
    orders = {
        tuple(whole(50, seed))
        for seed in ((0, 0), (0, 1), (1, 0), (0, -1), (1, 1))
    }
    assert len(orders) == 5


def test_it_stays_as_it_is():
    """A training that goes on needs the order that it began with."""
    assert whole(10, (0, 0)).tolist() == [9, 1, 5, 6, 4, 8, 2, 3, 7, 0]
    seed = (np.int64(3), -1)
    assert whole(10, seed).tolist() == [3, 5, 8, 0, 7, 9, 1, 2, 6, 4]
    some = permute([0, 1, 2**40], 2**40 + 1, (1, 2))
    assert some.tolist() == [949156872626, 944819303731, 336605591395]

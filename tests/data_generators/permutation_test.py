import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpt_keras.data_generators.permutation import permute

SEEDS = st.tuples(st.integers(0, 2**40), st.integers(-1, 2**20))


@given(st.integers(1, 3000), SEEDS)
def test_it_is_a_bijection(count, seed):
    permuted = permute(np.arange(count), count, seed)
    assert permuted.dtype == np.int64
    np.testing.assert_array_equal(np.sort(permuted), np.arange(count))


@given(st.integers(1, 10**12), SEEDS, st.data())
def test_a_position_does_not_depend_on_the_others(count, seed, data):
    positions = data.draw(
        st.lists(st.integers(0, count - 1), min_size=1, max_size=9)
    )
    permuted = permute(np.array(positions), count, seed)
    assert permuted.min() >= 0
    assert permuted.max() < count
    for position, place in zip(positions, permuted):
        assert permute(np.array([position]), count, seed) == [place]


def test_it_shuffles():
    count = 10_000
    permuted = permute(np.arange(count), count, (0, 0))
    # A random permutation has one fixed point on average, no long runs and no
    # correlation of place and position.
    assert np.sum(permuted == np.arange(count)) < 10
    assert np.sum(np.abs(np.diff(permuted)) == 1) < 20
    assert abs(np.corrcoef(permuted, np.arange(count))[0, 1]) < 0.05


def test_seeds_matter():
    orders = {
        tuple(permute(np.arange(50), 50, seed))
        for seed in ((0, 0), (0, 1), (1, 0), (0, -1), (1, 1))
    }
    assert len(orders) == 5

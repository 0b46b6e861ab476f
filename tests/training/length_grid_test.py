import numpy as np
import pytest

from tpt_keras.training.length_grid import MAX_PADDING
from tpt_keras.training.length_grid import MAX_PAIRS
from tpt_keras.training.length_grid import LengthGrid

LIMITS = (162, 31)


def sorted_batches(seed, count=512):
    """Lengths of batches of many kinds of problems, as they are sorted."""
    rng = np.random.default_rng(seed)
    sources = np.sort(rng.integers(30, 100, count))
    targets = rng.choice([3, 8, 9, 20], count)
    return np.stack([sources, targets], axis=-1)


def padding(grid, lengths, tokens):
    cells = np.sum([grid.pair(*pair) for pair in lengths], axis=0)
    return 1 - np.sum(tokens, axis=0) / cells


@pytest.mark.parametrize("seed", range(3))
def test_few_pairs_that_pad_little(seed):
    lengths = sorted_batches(seed)
    tokens = 0.9 * lengths
    grid = LengthGrid.chosen(lengths, tokens, LIMITS)
    assert len(grid.pairs) <= MAX_PAIRS
    assert np.all(padding(grid, lengths, tokens) < MAX_PADDING)
    # Those of equal steps, as many, leave more.
    sources = np.linspace(30, 100, MAX_PAIRS + 1, dtype=int)[1:]
    even = LengthGrid([(source, 20) for source in sources.tolist()], LIMITS)
    assert np.any(padding(even, lengths, tokens) > MAX_PADDING)


def test_the_same_batches_have_the_same_grid():
    first, again = (
        LengthGrid.chosen(sorted_batches(0), sorted_batches(0), LIMITS).pairs
        for _ in range(2)
    )
    assert first == again


def test_what_was_not_looked_at_fits():
    lengths = np.array([[20, 3], [41, 9]])
    grid = LengthGrid.chosen(lengths, lengths, LIMITS)
    assert grid.pairs == [(20, 3), (44, 9), (48, 12)]
    assert grid.pair(1, 1) == (20, 3)
    assert grid.pair(42, 9) == (44, 9)
    assert grid.pair(45, 10) == (48, 12)
    # Longer than all of them, and than anything should be.
    assert grid.pair(49, 1) == LIMITS
    assert grid.pair(163, 31) == (324, 31)


def test_no_pair_is_longer_than_the_limits():
    lengths = np.array([[30, 3], [170, 40], [161, 30]])
    grid = LengthGrid.chosen(lengths, lengths, LIMITS)
    assert max(grid.pairs) == LIMITS


def test_a_pair_that_saves_nothing_needs_no_program():
    lengths = np.array([[48, 4]] * 1000 + [[47, 4]])
    assert LengthGrid.chosen(lengths, lengths, LIMITS).pairs == [(48, 4)]


def test_of_batches_that_nothing_is_known_of():
    grid = LengthGrid.of_parts(LIMITS)
    assert grid.pairs == [(41, 31), (81, 31), (122, 31), LIMITS]
    assert grid.pair(60, 2) == (81, 31)

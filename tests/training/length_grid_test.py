import numpy as np

from tpt_keras.training.length_grid import LengthGrid

LIMITS = (162, 31)


def test_the_first_pair_that_fits():
    grid = LengthGrid([(48, 12), (20, 3), (44, 9)], LIMITS)
    assert grid.pairs == [(20, 3), (44, 9), (48, 12)]
    assert grid.pair(1, 1) == (20, 3)
    assert grid.pair(42, 9) == (44, 9)
    assert grid.pair(45, 10) == (48, 12)
    # Longer than all of them, and than anything should be.
    assert grid.pair(49, 1) == LIMITS
    assert grid.pair(163, 31) == (324, 31)


def test_no_pair_is_longer_than_the_limits():
    grid = LengthGrid(np.array([[30, 3], [168, 28], [176, 40]]), LIMITS)
    assert grid.pairs == [(30, 3), (162, 28), LIMITS]


def test_of_batches_that_nothing_is_known_of():
    grid = LengthGrid.of_parts(LIMITS)
    assert grid.pairs == [(41, 31), (81, 31), (122, 31), LIMITS]
    assert grid.pair(60, 2) == (81, 31)

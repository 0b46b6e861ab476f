import numpy as np
import pytest

from tpt_keras.analysis.reconstruction import reconstruction_errors
from tpt_keras.analysis.reconstruction import split_by_text
from tpt_keras.errors import UsageError

RNG = np.random.default_rng(5)


def test_cells_of_different_texts():
    rows = np.repeat(np.arange(20), RNG.integers(1, 9, 20))
    train, held_out = split_by_text(rows, 30)
    assert len(train) == 30
    assert not set(rows[train]) & set(rows[held_out])
    assert len(set(train)) == 30
    assert len(held_out) > len(rows) / 2 - 9
    again, other = (split_by_text(rows, 30, seed)[0] for seed in (0, 1))
    np.testing.assert_array_equal(train, again)
    assert not np.array_equal(train, other)
    with pytest.raises(UsageError, match=r"fit on 90.*--count"):
        split_by_text(rows, 90)


def test_errors():
    # The first head has the whole state in it, the second nothing.
    states = RNG.normal(size=(400, 3))
    values = np.stack([states @ RNG.normal(size=(3, 3)) + 1, 0 * states], 1)
    errors = reconstruction_errors(
        states, values, np.arange(100), np.arange(100, 400)
    )
    assert errors["train"][0] < 1e-9
    assert errors["held_out"][0] < 1e-9
    assert errors["held_out"][1] == pytest.approx(errors["variance"])
    assert errors["variance"] == pytest.approx(1.0, abs=0.1)
    # Noise that was fitted is no knowledge.
    noise = RNG.normal(size=(400, 1, 60))
    errors = reconstruction_errors(
        states, noise, np.arange(100), np.arange(100, 400)
    )
    assert errors["train"][0] < 0.6
    assert errors["held_out"][0] > 1.5

import numpy as np
import pytest

from tpt_keras.analysis.representations import binding_problem
from tpt_keras.analysis.representations import kept_variance
from tpt_keras.analysis.representations import reconstruction
from tpt_keras.analysis.representations import rotations
from tpt_keras.analysis.representations import split_characters
from tpt_keras.errors import UsageError
from tpt_keras.layers import BINDINGS

RNG = np.random.default_rng(5)
SPLIT = np.arange(300), np.arange(300, 500)


def test_a_split_keeps_texts_apart():
    lengths = RNG.integers(1, 9, 20)
    rows = np.repeat(np.arange(20), lengths)
    train, held_out = split_characters(lengths, 30)
    assert len(train) == len(set(train)) == 30
    assert not set(rows[train]) & set(rows[held_out])
    assert len(held_out) > len(rows) / 2 - 9
    again, other = (split_characters(lengths, 30, seed)[0] for seed in (0, 1))
    np.testing.assert_array_equal(train, again)
    assert not np.array_equal(train, other)
    with pytest.raises(UsageError):
        split_characters([5, 5], 6)


def test_reconstruction_is_exact_for_invertible_values():
    # The first head's values hold the whole state, the second's nothing.
    states = RNG.normal(size=(500, 3))
    values = np.stack([states @ RNG.normal(size=(3, 3)) + 1, 0 * states], 1)
    errors = reconstruction(states, values, *SPLIT)
    assert errors["train"][0] < 1e-9
    assert errors["held_out"] == pytest.approx([0.0, 1.0])
    # A fit of noise does not hold for other characters.
    noise = RNG.normal(size=(500, 1, 60))
    errors = reconstruction(states, noise, np.arange(100), np.arange(100, 500))
    assert errors["train"][0] < 0.6
    assert errors["held_out"][0] > 1.5


@pytest.mark.parametrize("binding", BINDINGS)
def test_binding_tells_structures_apart(binding):
    states = binding_problem(binding)
    assert list(states) == ["(a/b)/(c/d)", "(a/d)/(c/b)"]
    one, other = states.values()
    difference = np.abs(one - other).max()
    assert difference < 1e-5 if binding == "none" else difference > 0.01
    assert np.linalg.norm(one) > 1.0


def orthogonal(dim):
    return np.linalg.qr(RNG.normal(size=(dim, dim)))[0]


def kept_by_one_head(fillers, roles):
    kept = kept_variance(fillers[:, None], roles[:, None], *SPLIT)
    return {name: share for name, [share] in kept.items()}


def test_rotations_find_products_on_a_rotated_diagonal():
    # Every product is one of four, so four numbers hold it.
    m, n = orthogonal(4), orthogonal(4)
    kinds = RNG.integers(4, size=500)
    fillers = m.T[kinds] * RNG.normal(size=(500, 1))
    roles = n.T[kinds]
    kept = kept_by_one_head(fillers, roles)
    assert kept["rotated"] == pytest.approx(1.0, abs=1e-3)
    assert kept["principal"] == pytest.approx(1.0, abs=1e-3)
    assert kept["diagonal"] < 0.5
    rotated = kept_by_one_head(fillers @ m, roles @ n)
    assert rotated["diagonal"] == pytest.approx(1.0, abs=1e-3)


def test_kept_variance_equals_that_of_whole_products():
    fillers = RNG.normal(size=(500, 3)) @ np.diag([3, 2, 1]) + 1
    roles = RNG.normal(size=(500, 3)) + fillers
    products = np.einsum("nf,nr->nfr", fillers, roles)
    train, held_out = (products[indices] for indices in SPLIT)
    differences = held_out - train.mean(axis=0)
    total = np.sum(differences**2)
    on_diagonal = np.einsum("nii->ni", differences)
    components = np.linalg.svd(
        (train - train.mean(axis=0)).reshape(-1, 9), full_matrices=False
    )[2][:3]
    in_components = differences.reshape(-1, 9) @ components.T
    kept = kept_by_one_head(fillers, roles)
    assert kept["diagonal"] == pytest.approx(np.sum(on_diagonal**2) / total)
    assert kept["principal"] == pytest.approx(np.sum(in_components**2) / total)
    assert kept["diagonal"] < kept["rotated"] < kept["principal"]
    for matrix in rotations(fillers[:300], roles[:300]):
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-9)

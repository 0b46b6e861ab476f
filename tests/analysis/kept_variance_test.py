import numpy as np
import pytest

from tests.layers.attention_maps import copy_maps
from tpt_keras.analysis.kept_variance import kept_variance
from tpt_keras.analysis.kept_variance import rotations
from tpt_keras.layers import TPMultiHeadAttention

RNG = np.random.default_rng(5)
CELLS = np.arange(300), np.arange(300, 500)


def orthogonal(dim):
    return np.linalg.qr(RNG.normal(size=(dim, dim)))[0]


def test_products_on_a_rotated_diagonal():
    # Every product is one of four, so that four numbers hold it.
    m, n = orthogonal(4), orthogonal(4)
    kinds = RNG.integers(4, size=500)
    fillers = m.T[kinds] * RNG.normal(size=(500, 1))
    roles = n.T[kinds]
    kept = kept_variance(fillers, roles, *CELLS)
    assert kept["rotated"] == pytest.approx(1.0, abs=1e-3)
    assert kept["principal"] == pytest.approx(1.0, abs=1e-3)
    assert kept["diagonal"] < 0.5
    rotated = kept_variance(fillers @ m, roles @ n, *CELLS)
    assert rotated["diagonal"] == pytest.approx(1.0, abs=1e-3)


def test_shares_are_those_of_whole_products():
    fillers = RNG.normal(size=(500, 3)) @ np.diag([3, 2, 1]) + 1
    roles = RNG.normal(size=(500, 3)) + fillers
    products = np.einsum("nf,nr->nfr", fillers, roles)
    train, held_out = (products[cells] for cells in CELLS)
    differences = held_out - train.mean(axis=0)
    total = np.sum(differences**2)
    on_diagonal = np.einsum("nii->ni", differences)
    components = np.linalg.svd(
        (train - train.mean(axis=0)).reshape(-1, 9), full_matrices=False
    )[2][:3]
    in_components = differences.reshape(-1, 9) @ components.T
    kept = kept_variance(fillers, roles, *CELLS)
    assert kept["diagonal"] == pytest.approx(np.sum(on_diagonal**2) / total)
    assert kept["principal"] == pytest.approx(np.sum(in_components**2) / total)
    assert kept["diagonal"] < kept["rotated"] < kept["principal"]
    for matrix in rotations(fillers[:300], roles[:300]):
        np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-9)


def test_rotated_maps_give_the_rotated_diagonal_of_the_products():
    """Equations 12 and 13: hadamard attention with other parameters."""
    x = RNG.normal(size=(2, 5, 8)).astype("float32")
    tensor, hadamard = (
        TPMultiHeadAttention(
            1, 4, binding=binding, bias_initializer="random_normal"
        )
        for binding in ("tensor", "hadamard")
    )
    for layer in (tensor, hadamard):
        layer.build(x.shape, x.shape)
    copy_maps(tensor, hadamard)
    m, n = orthogonal(4), orthogonal(4)
    for dense, rotation in (
        (hadamard.value_dense, m),
        (hadamard.role_dense, n),
    ):
        dense.set_weights([w @ rotation for w in dense.get_weights()])
    # The output map takes the diagonal of M^T product N, and nothing else.
    kernel, bias = hadamard.output_dense.get_weights()
    whole = np.einsum("fc,rc,hcd->hfrd", m, n, kernel).reshape(1, 16, 8)
    tensor.output_dense.set_weights([whole, bias])
    np.testing.assert_allclose(tensor(x, x), hadamard(x, x), atol=1e-5)

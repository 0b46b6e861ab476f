import numpy as np
import pytest
from keras import ops

from tpt_keras.layers.binding import bind
from tpt_keras.layers.binding import bound_dim
from tpt_keras.layers.binding import check_binding
from tpt_keras.layers.binding import has_role

RNG = np.random.default_rng(5)
FILLER = RNG.normal(size=(2, 3, 4, 5)).astype("float32")
ROLE = RNG.normal(size=(2, 3, 4, 5)).astype("float32")


def test_none_returns_the_filler_and_needs_no_role():
    assert bind(FILLER, None, "none") is FILLER


def test_hadamard_is_the_elementwise_product():
    np.testing.assert_array_equal(
        ops.convert_to_numpy(bind(FILLER, ROLE, "hadamard")), FILLER * ROLE
    )


def test_tensor_is_the_outer_product_of_every_head():
    outer = np.zeros((2, 3, 4, 25), "float32")
    for index in np.ndindex(2, 3, 4):
        outer[index] = np.outer(FILLER[index], ROLE[index]).ravel()
    np.testing.assert_array_equal(
        ops.convert_to_numpy(bind(FILLER, ROLE, "tensor")), outer
    )


def test_hadamard_is_the_diagonal_of_the_tensor_product():
    tensor = ops.convert_to_numpy(bind(FILLER, ROLE, "tensor"))
    np.testing.assert_array_equal(
        np.diagonal(tensor.reshape(2, 3, 4, 5, 5), axis1=-2, axis2=-1),
        ops.convert_to_numpy(bind(FILLER, ROLE, "hadamard")),
    )


@pytest.mark.parametrize(
    ("binding", "dim", "needs_role"),
    [("none", 5, False), ("hadamard", 5, True), ("tensor", 25, True)],
)
def test_sizes(binding, dim, needs_role):
    assert check_binding(binding) == binding
    assert bound_dim(5, binding) == dim
    assert has_role(binding) is needs_role
    assert bind(FILLER, ROLE, binding).shape[-1] == dim


def test_unknown_binding_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'tpr'.*none, hadamard, tensor"):
        check_binding("tpr")

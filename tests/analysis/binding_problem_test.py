import numpy as np
import pytest

from tpt_keras.analysis.binding_problem import binding_problem


@pytest.mark.parametrize("binding", ["none", "hadamard", "tensor", "discrete"])
def test_binding_tells_structures_apart(binding):
    states = binding_problem(binding)
    assert list(states) == ["(a/b)/(c/d)", "(a/d)/(c/b)"]
    one, other = states.values()
    difference = np.abs(one - other).max()
    assert difference < 1e-5 if binding == "none" else difference > 0.01
    # Neither is what it was before.
    assert np.linalg.norm(one) > 1.0

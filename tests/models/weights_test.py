import keras
import numpy as np
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.models.weights import copy_model


@pytest.fixture
def model():
    return Transformer.from_preset(
        "tp_transformer_tiny", hidden_dim=8, num_heads=2, num_layers=1
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed_bfloat16"])
def test_copy_has_the_same_weights(model, dtype):
    model.compile("adam", "mse")
    other = copy_model(model, dtype)
    assert type(other) is Transformer
    assert (other.name, other.config) == (model.name, model.config)
    assert other.dtype_policy == keras.DTypePolicy(dtype)
    assert not other.compiled
    for new, old in zip(other.weights, model.weights, strict=True):
        assert new is not old
        assert new.dtype == other.variable_dtype
        expected = keras.ops.cast(old, new.dtype)
        np.testing.assert_array_equal(
            *(
                keras.ops.convert_to_numpy(x).astype("float32")
                for x in (new, expected)
            )
        )


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_refuses_a_quantized_model(model):
    model.quantize("int8")
    with pytest.raises(UsageError):
        copy_model(model, "bfloat16")

import keras
import numpy as np
import pytest
import tensorflow as tf

from tpt_keras.layers import FeedForward
from tpt_keras.serving.export import frozen_weights
from tpt_keras.serving.export.frozen_weights import FrozenWeights


@pytest.mark.parametrize(
    ("dtype", "most_bytes", "is_frozen"),
    [
        ("bfloat16", 1000, True),
        ("bfloat16", 10, False),
        ("float32", 1000, False),
    ],
)
def test_weights_are_constants_of_each_graph(
    monkeypatch, dtype, most_bytes, is_frozen
):
    monkeypatch.setattr(frozen_weights, "MOST_BYTES", most_bytes)
    layer = FeedForward(4, bias_initializer="ones", dtype=dtype)
    layer.build((None, 3))
    scope = FrozenWeights(layer)

    def apply_twice(x):
        with scope:
            _, x = tf.while_loop(
                lambda index, x: index < 2,
                lambda index, x: (index + 1, layer(x)),
                (0, layer(x)),
            )
            return x

    x = keras.ops.cast([[0.5, -1.0, 2.0]], dtype)
    expected = layer(layer(layer(x)))
    traced = tf.function(
        apply_twice, input_signature=[tf.TensorSpec((None, 3), dtype)]
    ).get_concrete_function()
    assert len(traced.variables) == (0 if is_frozen else 4)
    np.testing.assert_allclose(
        *(
            keras.ops.convert_to_numpy(y).astype("float32")
            for y in (traced(x), expected)
        ),
        atol=0.05,
    )

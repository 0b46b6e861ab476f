import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers.mechanisms.relative_attention import distances_to_keys
from tpt_keras.layers.mechanisms.relative_attention import keys_to_distances

RNG = np.random.default_rng(17)


def gradient(function, x, upstream):
    """Of the inner product with `upstream`."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.grad(lambda x: ops.sum(function(x) * upstream))(x)
    import tensorflow as tf

    x = tf.convert_to_tensor(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        total = ops.sum(function(x) * upstream)
    return tape.gradient(total, x)


class DistancesTest(LayerTestCase):
    @parameterized.parameters((3, 5), (4, 2), (1, 1))
    def test_each_is_the_gradient_of_the_other(self, targets, sources):
        of_keys, of_distances = (
            RNG.normal(size=(2, 3, targets, size)).astype("float32")
            for size in (sources, targets + sources)
        )

        def to_keys(x):
            return distances_to_keys(x, sources)

        # A linear map's gradient is its transpose: of as many numbers the
        # inner product is the same on either side.
        self.assert_all_close(
            ops.sum(to_keys(of_distances) * of_keys),
            ops.sum(of_distances * keys_to_distances(of_keys)),
            1e-5,
        )
        self.assert_all_equal(
            gradient(to_keys, of_distances, of_keys),
            keys_to_distances(of_keys),
        )
        self.assert_all_equal(
            gradient(keys_to_distances, of_keys, of_distances),
            to_keys(of_distances),
        )

import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import QueryBiases
from tpt_keras.layers import RelativeAttention
from tpt_keras.layers import TransformerXLAttention
from tpt_keras.layers.mechanisms.relative_attention import distances_to_keys
from tpt_keras.layers.mechanisms.relative_attention import keys_to_distances

RNG = np.random.default_rng(7)
LENGTHS = [(6, 6, False), (6, 6, True), (1, 1, True), (3, 7, False)]


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def inputs_of_lengths(targets, sources):
    """Queries, keys of size 4 and values of size 5 for 3 heads."""
    return (
        normal(2, targets, 3, 4),
        normal(2, sources, 3, 4),
        normal(2, sources, 3, 5),
    )


def built(mechanism):
    keys = (None, None, 3, 4)
    mechanism.build(keys, keys, (None, None, 3, 5))
    mechanism.set_weights([normal(*w.shape) for w in mechanism.weights])
    return mechanism


def attend(logits, is_causal):
    """The weights of one query, with `logits` of `(distance, logit)`."""
    logits = np.array(
        [
            -np.inf if is_causal and distance > 0 else logit
            for distance, logit in logits
        ]
    )
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


class RelativeAttentionTest(LayerTestCase):
    @parameterized.product(lengths=LENGTHS, max_distance=[1, 4, 16])
    def test_equals_equations_3_and_4(self, lengths, max_distance):
        *lengths, is_causal = lengths
        mechanism = built(RelativeAttention(max_distance=max_distance))
        key_table, value_table = mechanism.get_weights()
        queries, keys, values = inputs_of_lengths(*lengths)
        expected = np.zeros((*queries.shape[:3], 5), "float32")
        for b, i, h in np.ndindex(*queries.shape[:3]):
            distances = np.arange(lengths[1]) - i
            places = np.clip(distances, -max_distance, max_distance)
            places += max_distance
            logits = (keys[b, :, h] + key_table[places]) @ queries[b, i, h] / 2
            weights = attend(zip(distances, logits), is_causal)
            expected[b, i, h] = weights @ (
                values[b, :, h] + value_table[places]
            )
        filler, _ = mechanism(queries, keys, values, use_causal_mask=is_causal)
        self.assert_all_close(filler, expected)


class TransformerXLAttentionTest(LayerTestCase):
    @parameterized.parameters(*LENGTHS)
    def test_equals_section_3_3(self, targets, sources, is_causal):
        mechanism = built(TransformerXLAttention())
        kernel, u, v = mechanism.get_weights()
        queries, keys, values = inputs_of_lengths(targets, sources)
        frequencies = np.exp(-np.log(1e4) * np.arange(0, 12, 2) / 12)
        expected = np.zeros((*queries.shape[:3], 5), "float32")
        for b, i, h in np.ndindex(*queries.shape[:3]):
            logits, q = [], queries[b, i, h]
            for j in range(sources):
                angles = (i - j) * frequencies
                sinusoid = np.stack([np.sin(angles), np.cos(angles)], -1)
                of_distance = (sinusoid.ravel() @ kernel).reshape(3, 4)[h]
                logit = (q + u[h]) @ keys[b, j, h] + (q + v[h]) @ of_distance
                logits.append((j - i, logit / 2))
            expected[b, i, h] = attend(logits, is_causal) @ values[b, :, h]
        filler, _ = mechanism(queries, keys, values, use_causal_mask=is_causal)
        self.assert_all_close(filler, expected)

    def test_biases_can_be_shared(self):
        biases = QueryBiases()
        one, other = (built(TransformerXLAttention(biases)) for _ in range(2))
        self.assertIs(one.biases, other.biases)
        weights = keras.tree.flatten([one.weights, other.weights])
        self.assertLen({id(weight) for weight in weights}, 2 + 2)


def gradient(function, x, upstream):
    """The gradient of the inner product with `upstream`."""
    if keras.backend.backend() == "torch":
        import torch

        x = x.clone().requires_grad_()
        return torch.autograd.grad(ops.sum(function(x) * upstream), x)[0]
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
    def test_each_shift_is_the_gradient_of_the_other(self, targets, sources):
        of_keys, of_distances = (
            ops.convert_to_tensor(normal(2, 3, targets, length))
            for length in (sources, targets + sources)
        )

        def to_keys(x):
            return distances_to_keys(x, sources)

        def to_distances(x):
            return keys_to_distances(x, targets + sources)

        # The gradient of a linear map is its transpose.
        self.assert_all_close(
            ops.sum(to_keys(of_distances) * of_keys),
            ops.sum(of_distances * to_distances(of_keys)),
        )
        self.assert_all_equal(
            gradient(to_keys, of_distances, of_keys), to_distances(of_keys)
        )
        self.assert_all_equal(
            gradient(to_distances, of_keys, of_distances), to_keys(of_distances)
        )

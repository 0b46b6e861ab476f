import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layers.mechanisms.mechanism_test_case import MechanismTestCase
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers import TransformerXLAttention

RNG = np.random.default_rng(13)


def heads(length, dim=4):
    return RNG.normal(size=(2, length, 3, dim)).astype("float32")


def built():
    mechanism = TransformerXLAttention()
    mechanism.build(*2 * [(None, None, 3, 4)], (None, None, 3, 5))
    mechanism.set_weights([RNG.normal(size=w.shape) for w in mechanism.weights])
    return mechanism


def sinusoid(distance, size):
    frequencies = np.exp(-np.log(1e4) * np.arange(0, size, 2) / size)
    pairs = np.stack(
        [np.sin(distance * frequencies), np.cos(distance * frequencies)], -1
    )
    return pairs.ravel()


def brute_force(mechanism, queries, keys, values, is_causal):
    """The equation of section 3.3, one query and key after the other."""
    kernel, u, v = mechanism.get_weights()
    filler = np.zeros((*queries.shape[:3], values.shape[-1]))
    for b, i, h in np.ndindex(*queries.shape[:3]):
        logits = []
        for j in range(keys.shape[1]):
            of_distance = (sinusoid(i - j, 12) @ kernel).reshape(3, 4)[h]
            q = queries[b, i, h]
            logit = (q + u[h]) @ keys[b, j, h] + (q + v[h]) @ of_distance
            logits.append(-np.inf if is_causal and j > i else logit / 2.0)
        weights = np.exp(logits - np.max(logits))
        filler[b, i, h] = weights / weights.sum() @ values[b, :, h]
    return filler


class TransformerXLAttentionTest(MechanismTestCase):
    @parameterized.parameters(
        ((6, 6), False),
        ((6, 6), True),
        ((1, 1), True),
        ((3, 7), False),
        ((7, 3), True),
    )
    def test_equals_brute_force(self, lengths, is_causal):
        mechanism = built()
        queries, keys, values = (
            heads(lengths[0]),
            heads(lengths[1]),
            heads(lengths[1], 5),
        )
        filler, _ = mechanism(queries, keys, values, use_causal_mask=is_causal)
        expected = brute_force(mechanism, queries, keys, values, is_causal)
        self.assert_all_close(filler, expected, 1e-5)

    def test_sees_no_future(self):
        mechanism = built()
        x, changed = heads(6), heads(6)
        changed[:, :4] = x[:, :4]
        one, other = (
            ops.convert_to_numpy(mechanism(*3 * [y], use_causal_mask=True)[0])
            for y in (x, changed)
        )
        self.assert_all_close(one[:, :4], other[:, :4], 1e-6)
        self.assertGreater(np.abs(one[:, 4:] - other[:, 4:]).min(), 0)

    def test_cached_equals_uncached(self):
        self.check_cached_equals_uncached(
            built(), heads(5, 4), heads(5, 4), heads(5, 5)
        )

    def test_takes_lengths_that_are_not_known(self):
        self.check_takes_lengths_that_are_not_known(built(), heads, (4, 4, 5))

    @pytest.mark.slow
    def test_as_a_part_of_attention(self):
        x = RNG.normal(size=(2, 4, 8)).astype("float32")
        self.run_layer_test(
            TPMultiHeadAttention,
            {"num_heads": 2, "key_dim": 3, "attention": "transformer_xl"},
            inputs=[x, x],
            expected_output_shape=x.shape,
            expected_weight_count=4 * 54 + 56 + 2 * 6 + 36,
            # A softmax is the same whatever is added to all of its logits.
            untrained_weights=["key/bias"],
        )

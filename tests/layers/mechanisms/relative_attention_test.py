import numpy as np
import pytest
from absl.testing import parameterized

from tests.layers.mechanisms.mechanism_test_case import MechanismTestCase
from tpt_keras.layers import RelativeAttention
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers import make_mechanism

RNG = np.random.default_rng(7)


def heads(length, dim, batch_size=2, num_heads=3):
    shape = (batch_size, length, num_heads, dim)
    return RNG.normal(size=shape).astype("float32")


def built(max_distance=2, key_dim=4, value_dim=5):
    mechanism = RelativeAttention(max_distance=max_distance)
    key_shape, value_shape = (
        (None, None, 3, key_dim),
        (None, None, 3, value_dim),
    )
    mechanism.build(key_shape, key_shape, value_shape)
    mechanism.set_weights([RNG.normal(size=w.shape) for w in mechanism.weights])
    return mechanism


def brute_force(mechanism, queries, keys, values, is_causal, start_index=0):
    """Shaw et al.'s equations 3 and 4, one query and key after the other."""
    key_table, value_table = mechanism.get_weights()
    k = mechanism.max_distance
    filler = np.zeros((*queries.shape[:3], values.shape[-1]))
    for b, i, h in np.ndindex(*queries.shape[:3]):
        places = [
            np.clip(j - i - start_index, -k, k) + k
            for j in range(keys.shape[1])
        ]
        logits = np.array(
            [
                queries[b, i, h] @ (keys[b, j, h] + key_table[place])
                if not (is_causal and j > i + start_index)
                else -np.inf
                for j, place in enumerate(places)
            ]
        ) / np.sqrt(queries.shape[-1])
        weights = np.exp(logits - logits.max())
        weights /= weights.sum()
        for j, place in enumerate(places):
            filler[b, i, h] += weights[j] * (
                values[b, j, h] + value_table[place]
            )
    return filler


class RelativeAttentionTest(MechanismTestCase):
    @parameterized.parameters(
        ((6, 6), False, 4),
        ((6, 6), True, 1),
        ((1, 1), True, 16),
        ((3, 7), False, 16),
        ((7, 3), True, 4),
    )
    def test_equals_brute_force(self, lengths, is_causal, max_distance):
        mechanism = built(max_distance)
        arguments = (
            heads(lengths[0], 4),
            heads(lengths[1], 4),
            heads(lengths[1], 5),
        )
        filler, _ = mechanism(*arguments, use_causal_mask=is_causal)
        self.assert_all_close(
            filler, brute_force(mechanism, *arguments, is_causal), 1e-6, 1e-5
        )

    def test_zero_tables_are_dot_products(self):
        mechanism, plain = built(), make_mechanism("dot_product")
        mechanism.set_weights([0 * w for w in mechanism.get_weights()])
        arguments = heads(5, 4), heads(5, 4), heads(5, 5)
        plain.build(*(x.shape for x in arguments))
        for actual, expected in zip(mechanism(*arguments), plain(*arguments)):
            self.assert_all_close(actual, expected, 1e-6)

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
            {
                "num_heads": 2,
                "key_dim": 3,
                "attention": "relative",
                "attention_options": {"max_distance": 3},
            },
            inputs=[x, x],
            expected_output_shape=x.shape,
            expected_weight_count=4 * 54 + 56 + 2 * 7 * 3,
            # A softmax is the same whatever is added to all of its logits.
            untrained_weights=["key/bias"],
        )

    @parameterized.parameters(0, -1, 2.5)
    def test_what_makes_no_sense(self, max_distance):
        with self.assertRaises(ValueError):
            RelativeAttention(max_distance=max_distance)

import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import DotProductAttention
from tpt_keras.layers import make_mechanism

RNG = np.random.default_rng(5)
# Batch 2, 5 positions, 3 heads; keys of size 4, values of size 6.
QUERIES, KEYS = RNG.normal(size=(2, 2, 5, 3, 4)).astype("float32")
VALUES = RNG.normal(size=(2, 5, 3, 6)).astype("float32")
MASK = np.array([[1, 1, 1, 0, 1], [1, 0, 0, 0, 0]], "bool")[:, None, None]


def new_mechanism(**kwargs):
    mechanism = DotProductAttention(**kwargs)
    mechanism.build(QUERIES.shape, KEYS.shape, VALUES.shape)
    return mechanism


class DotProductAttentionTest(LayerTestCase):
    def test_over_a_cache_as_over_the_heads(self):
        mechanism = new_mechanism()
        expected = mechanism(QUERIES, KEYS, VALUES, attention_mask=MASK)
        cache = mechanism.make_cache(KEYS, VALUES)
        for actual, other in zip(
            mechanism.attend(QUERIES, cache, attention_mask=MASK), expected
        ):
            self.assert_all_equal(actual, other)

    @parameterized.parameters(None, 2)
    def test_position_by_position_as_causal(self, sliding_window):
        mechanism = new_mechanism(sliding_window=sliding_window)
        expected, _ = mechanism(QUERIES, KEYS, VALUES, use_causal_mask=True)
        expected = ops.convert_to_numpy(expected)
        cache = mechanism.init_cache(2, max_length=7)
        for index in range(5):
            here = slice(index, index + 1)
            cache = mechanism.update_cache(
                cache, KEYS[:, here], VALUES[:, here], index
            )
            filler, _ = mechanism.attend(QUERIES[:, here], cache, index=index)
            self.assert_all_close(filler, expected[:, here])

    def test_queries_that_start_behind_the_first_key(self):
        mechanism = new_mechanism()
        expected = mechanism(QUERIES, KEYS, VALUES, use_causal_mask=True)
        filler, weights = mechanism(
            QUERIES[:, 2:], KEYS, VALUES, use_causal_mask=True, start_index=2
        )
        expected = [ops.convert_to_numpy(tensor) for tensor in expected]
        self.assert_all_close(filler, expected[0][:, 2:])
        self.assert_all_close(weights, expected[1][:, :, 2:])

    def test_functional_model_and_config(self):
        inputs = [
            keras.Input((None, *heads.shape[2:]))
            for heads in (QUERIES, KEYS, VALUES)
        ]
        mechanism = DotProductAttention(dropout=0.5, sliding_window=2, seed=3)
        outputs = mechanism(*inputs)
        self.assertEqual(
            [tuple(output.shape) for output in outputs],
            [(None, None, 3, 6), (None, 3, None, None)],
        )
        expected = keras.Model(inputs, outputs)([QUERIES, KEYS, VALUES])
        revived = DotProductAttention.from_config(mechanism.get_config())
        self.assertEqual(revived.get_config(), mechanism.get_config())
        for actual, other in zip(revived(QUERIES, KEYS, VALUES), expected):
            self.assert_all_equal(actual, other)

    def test_names(self):
        self.assertIsInstance(
            make_mechanism("dot_product"), DotProductAttention
        )
        self.assertIsInstance(
            make_mechanism("tpt_keras>DotProductAttention"), DotProductAttention
        )
        for name in ("dot", "tpt_keras>EncoderCell", "elsewhere>Attention"):
            with self.assertRaises(ValueError):
                make_mechanism(name)

import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import DotProductScore
from tpt_keras.layers.scores import make_score

RNG = np.random.default_rng(5)
# Batch 2, 5 positions, 3 heads; keys of size 4, values of size 6.
QUERIES, KEYS = RNG.normal(size=(2, 2, 5, 3, 4)).astype("float32")
VALUES = RNG.normal(size=(2, 5, 3, 6)).astype("float32")
MASK = np.array([[1, 1, 1, 0, 1], [1, 0, 0, 0, 0]], "bool")[:, None, None]


def new_score(**kwargs):
    score = DotProductScore(**kwargs)
    score.build(QUERIES.shape, KEYS.shape, VALUES.shape)
    return score


class DotProductScoreTest(LayerTestCase):
    def test_over_a_cache_as_over_the_heads(self):
        score = new_score()
        expected = score(QUERIES, KEYS, VALUES, attention_mask=MASK)
        cache = score.make_cache(KEYS, VALUES)
        for actual, other in zip(
            score.attend(QUERIES, cache, attention_mask=MASK), expected
        ):
            self.assert_all_equal(actual, other)

    @parameterized.parameters(None, 2)
    def test_position_by_position_as_causal(self, sliding_window):
        score = new_score(sliding_window=sliding_window)
        expected, _ = score(QUERIES, KEYS, VALUES, use_causal_mask=True)
        expected = ops.convert_to_numpy(expected)
        cache = score.init_cache(2, max_length=7)
        for index in range(5):
            here = slice(index, index + 1)
            cache = score.update_cache(
                cache, KEYS[:, here], VALUES[:, here], index
            )
            filler, _ = score.attend(QUERIES[:, here], cache, index=index)
            self.assert_all_close(filler, expected[:, here])

    def test_queries_that_start_behind_the_first_key(self):
        score = new_score()
        expected = score(QUERIES, KEYS, VALUES, use_causal_mask=True)
        filler, weights = score(
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
        score = DotProductScore(dropout=0.5, sliding_window=2, seed=3)
        outputs = score(*inputs)
        self.assertEqual(
            [tuple(output.shape) for output in outputs],
            [(None, None, 3, 6), (None, 3, None, None)],
        )
        expected = keras.Model(inputs, outputs)([QUERIES, KEYS, VALUES])
        revived = DotProductScore.from_config(score.get_config())
        self.assertEqual(revived.get_config(), score.get_config())
        for actual, other in zip(revived(QUERIES, KEYS, VALUES), expected):
            self.assert_all_equal(actual, other)

    def test_names(self):
        self.assertIsInstance(make_score("dot_product"), DotProductScore)
        self.assertIsInstance(
            make_score("tpt_keras>DotProductScore"), DotProductScore
        )
        for name in ("dot", "tpt_keras>EncoderCell", "elsewhere>Score"):
            with self.assertRaisesRegex(ValueError, "Known .*: dot_product"):
                make_score(name)

import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tpt_keras.errors import UsageError
from tpt_keras.layers import DecoderCell
from tpt_keras.layers import DotProductAttention
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers.mechanisms.positions import alibi_slopes

RNG = np.random.default_rng(13)
X = RNG.normal(size=(2, 4, 8)).astype("float32")


def heads(length):
    """3 heads of size 6."""
    return RNG.normal(size=(2, length, 3, 6)).astype("float32")


def rotary_logit(q, k, i, j):
    """The real part of equation 16, of RoFormer, for two positions."""
    q, k = (x[0::2] + 1j * x[1::2] for x in (q, k))
    angles = (i - j) * 10000.0 ** (-2 * np.arange(3) / 6)
    return np.sum(q * np.conj(k) * np.exp(1j * angles)).real / np.sqrt(6)


def alibi_logit(q, k, i, j, slope):
    return q @ k / np.sqrt(6) - slope * abs(i - j)


def expected_weights(logit, queries, keys, is_causal, start_index):
    targets, sources = queries.shape[1], keys.shape[1]
    weights = np.zeros((2, 3, targets, sources))
    for b, h, i in np.ndindex(2, 3, targets):
        place = start_index + i
        for j in range(place + 1 if is_causal else sources):
            weights[b, h, i, j] = np.exp(
                logit(h, queries[b, i, h], keys[b, j, h], place, j)
            )
    return (weights / weights.sum(-1, keepdims=True)).astype("float32")


class PositionsTest(LayerTestCase):
    @parameterized.product(
        positions=["rotary", "alibi"],
        case=[(5, 5, False, 0), (5, 5, True, 0), (2, 6, True, 4)],
    )
    def test_equals_the_paper(self, positions, case):
        targets, sources, is_causal, start_index = case
        queries, keys = heads(targets), heads(sources)
        mechanism = DotProductAttention(positions=positions)
        mechanism.build(*3 * [(None, None, 3, 6)])
        _, weights = mechanism(
            queries,
            keys,
            keys,
            use_causal_mask=is_causal,
            start_index=start_index,
        )
        slopes = [1 / 16, 1 / 256, 1 / 4]

        def logit(head, *args):
            if positions == "rotary":
                return rotary_logit(*args)
            return alibi_logit(*args, slopes[head])

        expected = expected_weights(
            logit, queries, keys, is_causal, start_index
        )
        self.assert_all_close(weights, expected, 1e-6, 1e-6)

    def test_rotated_keys_are_cached(self):
        mechanism = DotProductAttention(positions="rotary")
        plain = DotProductAttention()
        for each in (mechanism, plain):
            each.build(*3 * [(None, None, 3, 6)])
        keys = ops.convert_to_tensor(heads(4))
        rotated, values = mechanism.make_cache(keys, keys)
        unrotated, _ = plain.make_cache(keys, keys)
        self.assert_all_equal(values, unrotated)
        self.assert_all_close(rotated[:, :, :1], unrotated[:, :, :1])
        self.assertGreater(
            np.abs(ops.convert_to_numpy(rotated - unrotated)[:, :, 1:]).max(),
            0.1,
        )
        self.assert_all_close(
            ops.sum(rotated**2, -1), ops.sum(unrotated**2, -1)
        )

    def test_slopes_are_the_released_ones(self):
        exponents = [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]
        for num_heads in (8, 12):
            np.testing.assert_allclose(
                alibi_slopes(num_heads),
                [0.5**exponent for exponent in exponents[:num_heads]],
            )
        self.assertEqual(alibi_slopes(1), [1 / 2**8])

    @parameterized.parameters("rotary", "alibi")
    def test_layer(self, positions):
        self.run_layer_test(
            TPMultiHeadAttention,
            {
                "num_heads": 2,
                "key_dim": 4,
                "attention_options": {"positions": positions},
            },
            inputs=[X, X],
            expected_output_shape=X.shape,
            expected_weight_count=5 * 64 + 5 * 8,
            # A softmax ignores what is added to all of its logits. Rotated,
            # it differs from key to key.
            untrained_weights=["key/bias"] * (positions == "alibi"),
        )

    @parameterized.parameters("rotary", "alibi")
    def test_cross_attention_has_none(self, positions):
        cell = DecoderCell(12, 2, attention_options={"positions": positions})
        cell.build((None, None, 8))
        attention, cross = (
            layer.attention
            for layer in (cell.self_attention, cell.cross_attention)
        )
        self.assertEqual(attention.positions, positions)
        self.assertIsNone(cross.positions)

    @parameterized.parameters(
        ({"attention_options": {"positions": "learned"}}, "attention_options"),
        (
            {
                "attention": "relative",
                "attention_options": {"positions": "rotary"},
            },
            "attention_options",
        ),
        (
            {
                "attention": "multi_linear",
                "attention_options": {"positions": "alibi"},
            },
            "attention_options",
        ),
        (
            {
                "flash_attention": True,
                "attention_options": {"positions": "alibi"},
            },
            "attention_options",
        ),
        (
            {"key_dim": 3, "attention_options": {"positions": "rotary"}},
            "key_dim",
        ),
    )
    def test_senseless_combinations_are_refused(self, arguments, field):
        with self.assertRaises(UsageError) as caught:
            TPMultiHeadAttention(2, **{"key_dim": 4, **arguments})(X, X)
        self.assertEqual(caught.exception.field, field)

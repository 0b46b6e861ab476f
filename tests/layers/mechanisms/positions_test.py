import numpy as np
from absl.testing import parameterized

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import DotProductAttention

RNG = np.random.default_rng(13)


def heads(length):
    """3 heads of size 6."""
    return RNG.normal(size=(2, length, 3, 6)).astype("float32")


def rotary_logit(q, k, i, j):
    """The real part of equation 16, of RoFormer, for two positions."""
    q, k = (x[0::2] + 1j * x[1::2] for x in (q, k))
    angles = (i - j) * 10000.0 ** (-2 * np.arange(3) / 6)
    return np.sum(q * np.conj(k) * np.exp(1j * angles)).real / np.sqrt(6)


def expected_weights(queries, keys, is_causal, start_index):
    targets, sources = queries.shape[1], keys.shape[1]
    weights = np.zeros((2, 3, targets, sources))
    for b, h, i in np.ndindex(2, 3, targets):
        place = start_index + i
        for j in range(place + 1 if is_causal else sources):
            weights[b, h, i, j] = np.exp(
                rotary_logit(queries[b, i, h], keys[b, j, h], place, j)
            )
    return (weights / weights.sum(-1, keepdims=True)).astype("float32")


class PositionsTest(LayerTestCase):
    @parameterized.parameters(
        (5, 5, False, 0), (5, 5, True, 0), (2, 6, True, 4)
    )
    def test_equals_the_paper(self, targets, sources, is_causal, start_index):
        queries, keys = heads(targets), heads(sources)
        mechanism = DotProductAttention(positions="rotary")
        mechanism.build(*3 * [(None, None, 3, 6)])
        _, weights = mechanism(
            queries,
            keys,
            keys,
            use_causal_mask=is_causal,
            start_index=start_index,
        )
        expected = expected_weights(queries, keys, is_causal, start_index)
        self.assert_all_close(weights, expected, 1e-6, 1e-6)

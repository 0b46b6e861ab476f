import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import DotProductAttention
from tpt_keras.layers import TPMultiHeadAttention

RNG = np.random.default_rng(19)
X = RNG.normal(size=(2, 6, 8)).astype("float32")
IS_REAL = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 0, 0]], "bool")


def softmax(logits):
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def dual_attention(layer, x, symbols, kernel, is_seen):
    """Section 2 of Altabaa and Lafferty, a query and a head at a time.

    Args:
        layer: A `TPMultiHeadAttention` of `make_layer`.
        x: Array `(length, hidden_dim)`.
        symbols: Dict from a distance to its symbol, the paper's library.
        kernel: The paper's W_s, `(symbol_dim, 2, 3)`.
        is_seen: Boolean `(length, length)`.
    """
    weights = {
        name: getattr(layer, f"{name}_dense").get_weights()
        for name in ("query", "key", "value", "output")
    }
    q, k, v = (
        np.einsum("tx,xhd->thd", x, weights[name][0]) + weights[name][1]
        for name in ("query", "key", "value")
    )
    relation_q, relation_k = (
        ops.convert_to_numpy(dense(x[None]))[0]
        for dense in (layer.attention.query_dense, layer.attention.key_dense)
    )
    relation_kernel = ops.convert_to_numpy(layer.attention.relation_kernel)
    relation_kernel = relation_kernel.reshape(2, 2, 3)
    output = np.zeros_like(x)
    for i in range(len(x)):
        seen = np.flatnonzero(is_seen[i])
        fillers = []
        for h in range(4):
            of_keys = softmax(k[seen, h] @ q[i, h] / np.sqrt(4))
            filler = np.zeros(3)
            for weight, j in zip(of_keys, seen):
                if h < 2:
                    filler += weight * v[j, h]
                    continue
                relations = np.sum(relation_q[i] * relation_k[j], axis=-1)
                symbol = symbols[np.clip(j - i, -3, 3)]
                filler += weight * (
                    relations / np.sqrt(8) @ relation_kernel[:, h - 2]
                    + symbol @ kernel[:, h - 2]
                )
            fillers.append(filler)
        output_kernel, output_bias = weights["output"]
        output[i] = np.einsum("hd,hdx->x", fillers, output_kernel) + output_bias
    return output


def make_layer(**options):
    """4 heads, with queries of size 4 and values of size 3."""
    layer = TPMultiHeadAttention(
        4,
        4,
        value_dim=3,
        binding="none",
        attention="relational",
        attention_options={"max_distance": 3, **options},
    )
    layer.build(X.shape, X.shape)
    for weight in layer.weights:
        weight.assign(RNG.normal(scale=0.4, size=weight.shape))
    return layer


class RelationalAttentionTest(LayerTestCase):
    @parameterized.parameters(False, True)
    def test_equals_the_paper(self, is_causal):
        layer = make_layer()
        library, kernel = RNG.normal(size=(7, 5)), RNG.normal(size=(5, 2, 3))
        layer.attention.symbols.assign(library @ kernel.reshape(5, 6))
        symbols = dict(zip(range(-3, 4), library))
        seen = np.tri(6, dtype="bool") if is_causal else np.ones((6, 6), "bool")
        expected = [
            dual_attention(layer, x, symbols, kernel, seen & is_real)
            for x, is_real in zip(X, IS_REAL)
        ]
        output = layer(X, X, value_mask=IS_REAL, use_causal_mask=is_causal)
        self.assert_all_close(output, np.array(expected), 1e-6, 1e-6)

    def test_positions_change_weights_and_not_relations(self):
        layer, plain = make_layer(positions="rotary"), make_layer()
        plain.set_weights(layer.get_weights())
        _, weights = layer(X, X, return_attention_scores=True)
        keys = layer.key_dense(X)
        other = DotProductAttention(positions="rotary")
        other.build(*3 * [(None, None, 4, 4)])
        _, expected = other(layer.query_dense(X), keys, keys)
        self.assert_all_close(weights, expected)
        caches = (each.project_keys_and_values(X)[2] for each in (layer, plain))
        self.assert_all_equal(*caches)

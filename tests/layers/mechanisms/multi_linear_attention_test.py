import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layers.helpers import largest_tensor
from tests.layers.helpers import needs_tensorflow
from tests.refusals import refused
from tpt_keras.layers import MultiLinearAttention
from tpt_keras.layers import TPMultiHeadAttention

RNG = np.random.default_rng(11)


def heads(length, batch_size=2, num_heads=3, dim=4):
    shape = (batch_size, length, num_heads, dim)
    return RNG.normal(size=shape).astype("float32")


def built(max_length=8, **kwargs):
    mechanism = MultiLinearAttention(max_length=max_length, **kwargs)
    mechanism.build(*3 * [(None, None, 3, 4)])
    mechanism.set_weights([RNG.normal(size=w.shape) for w in mechanism.weights])
    return mechanism


def explicit(mechanism, queries, keys, values, is_causal=False, is_real=None):
    """Makes the whole tensor of order three and maps it."""
    cores, kernel = mechanism.get_weights()
    tensor = np.einsum(
        "hr,bihr,bjhr,bmhr->bhijm", cores.mean(0), queries, keys, values
    )
    targets, sources = tensor.shape[2:4]
    if is_causal:
        past = np.tri(targets, sources)
        tensor = tensor * past[:, :, None] * past[:, None, :]
    if is_real is not None:
        tensor = tensor * is_real[:, None, None, :, None]
        tensor = tensor * is_real[:, None, None, None, :]
    return np.einsum("bhijm,hjmv->bihv", tensor, kernel[:, :sources, :sources])


class MultiLinearAttentionTest(LayerTestCase):
    @parameterized.product(lengths=[(5, 5), (3, 6), (1, 1)], num_cores=[1, 3])
    def test_equals_the_tensor_of_order_three(self, lengths, num_cores):
        mechanism = built(num_cores=num_cores)
        queries, keys, values = map(heads, (lengths[0], lengths[1], lengths[1]))
        filler, weights = mechanism(queries, keys, values)
        self.assertIsNone(weights)
        expected = explicit(mechanism, queries, keys, values)
        self.assert_all_close(filler, expected, 1e-4, 1e-4)

    @parameterized.parameters(False, True)
    def test_causal_and_padding_masks(self, is_causal):
        mechanism = built()
        arguments = heads(5), heads(5), heads(5)
        is_real = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], bool)
        filler, _ = mechanism(
            *arguments,
            attention_mask=is_real[:, None, None],
            use_causal_mask=is_causal,
        )
        expected = explicit(mechanism, *arguments, is_causal, is_real)
        self.assert_all_close(filler, expected, 1e-4, 1e-4)

    @parameterized.parameters(False, True)
    @needs_tensorflow
    def test_whole_tensor_is_never_made(self, is_causal):
        mechanism = built(max_length=64)
        sizes = [
            largest_tensor(
                lambda x: mechanism(x, x, x, use_causal_mask=is_causal)[0],
                (2, length, 3, 4),
            )
            for length in (32, 64)
        ]
        # The map itself is `length ** 2`, the tensor would be `length ** 3`.
        self.assertEqual(sizes[1], 3 * 64 * 64 * 4)
        self.assertLess(sizes[1], 2 * 3 * 64**3 / 10)

    @parameterized.parameters(False, True)
    def test_map_can_be_the_output_map(self, is_causal):
        layer = TPMultiHeadAttention(
            3,
            4,
            binding="none",
            attention="multi_linear",
            attention_options={"max_length": 8, "output_dim": 5},
        )
        x = heads(6)[:, :, 0, [0, 1, 2, 3, 0]]
        output = layer(x, x, use_causal_mask=is_causal)
        self.assertLen(layer.weights, 2 * 3 + 2)  # no output map
        queries, keys, values = (
            ops.convert_to_numpy(dense(x))
            for dense in (layer.query_dense, layer.key_dense, layer.value_dense)
        )
        expected = explicit(layer.attention, queries, keys, values, is_causal)
        self.assert_all_close(output, expected.sum(-2), 1e-4, 1e-4)
        # The cache has the output's size too.
        cache = layer.attention.init_cache(2, 6)
        for index in range(6 if is_causal else 0):
            step = x[:, index : index + 1]
            cache = layer.update_cache(cache, step, index)
            cached = layer.attend(step, cache, index=index)
            self.assert_all_close(
                cached, output[:, index : index + 1], 1e-4, 1e-4
            )

    def test_sequences_with_a_keras_mask(self):
        options = {"max_length": 8}
        layer = TPMultiHeadAttention(
            2, 3, attention="multi_linear", attention_options=options
        )
        embedding = keras.layers.Embedding(6, 8, mask_zero=True)
        x = embedding(np.array([[1, 2, 3, 0, 0]]))
        self.assert_all_close(layer(x, x)[:, :3], layer(x[:, :3], x[:, :3]))

    def test_invalid_shapes_and_masks_are_refused(self):
        mechanism = built()
        for call in (
            lambda: MultiLinearAttention().build(
                *2 * [(1, 2, 3, 4)], (1, 2, 3, 5)
            ),
            lambda: mechanism(heads(9), heads(9), heads(9)),
            lambda: mechanism.init_cache(2, max_length=9),
            lambda: mechanism(
                *3 * [heads(5)], attention_mask=np.ones((2, 1, 5, 5), bool)
            ),
        ):
            with self.assertRaises(ValueError):
                call()

    def test_invalid_output_maps_are_refused(self):
        options = {"max_length": 8, "output_dim": 5}
        arguments = {"attention": "multi_linear", "attention_options": options}
        with refused("binding"):
            TPMultiHeadAttention(2, 3, **arguments)
        layer = TPMultiHeadAttention(2, 3, binding="none", **arguments)
        with self.assertRaises(ValueError):
            layer.build(*2 * [(1, 2, 6)])

import keras
import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layers.largest_tensor import largest_tensor
from tests.layers.largest_tensor import needs_graph
from tests.layers.mechanisms.mechanism_test_case import MechanismTestCase
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
    """The tensor of order three, and its map."""
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


def bytes_held(function, length):
    """By XLA, between what comes in and what goes out."""
    import jax

    x = jax.ShapeDtypeStruct((2, length, 3, 4), "float32")
    program = jax.jit(function).lower(x).compile()
    return program.memory_analysis().temp_size_in_bytes


class MultiLinearAttentionTest(MechanismTestCase):
    @parameterized.product(lengths=[(5, 5), (3, 6), (1, 1)], num_cores=[1, 3])
    def test_equals_the_tensor_of_order_three(self, lengths, num_cores):
        mechanism = built(num_cores=num_cores)
        queries, keys, values = map(heads, (lengths[0], lengths[1], lengths[1]))
        filler, weights = mechanism(queries, keys, values)
        self.assertIsNone(weights)
        expected = explicit(mechanism, queries, keys, values)
        self.assert_all_close(filler, expected, 1e-4, 1e-4)

    def test_sees_no_future(self):
        mechanism = built()
        arguments = heads(6), heads(6), heads(6)
        filler, _ = mechanism(*arguments, use_causal_mask=True)
        self.assert_all_close(
            filler, explicit(mechanism, *arguments, is_causal=True), 1e-4, 1e-4
        )
        changed = [x.copy() for x in arguments]
        for x in changed:
            x[:, 4:] += 1.0
        other, _ = mechanism(*changed, use_causal_mask=True)
        self.assert_all_equal(other[:, :4], filler[:, :4])
        self.assertTrue(np.all(ops.convert_to_numpy(other != filler)[:, 4:]))

    @parameterized.parameters(False, True)
    @needs_graph
    def test_holds_nothing_of_the_size_of_the_tensor(self, is_causal):
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
    @pytest.mark.skipif(
        keras.backend.backend() != "jax", reason="asks XLA how much it holds"
    )
    def test_twice_the_length_takes_four_times_the_memory(self, is_causal):
        def contracted(x):
            return mechanism(x, x, x, use_causal_mask=is_causal)[0]

        def whole(x):
            tensor = ops.einsum("bihr,bjhr,bmhr->bhijm", x, x, x)
            return ops.einsum(
                "bhijm,hjmv->bihv", tensor, mechanism.kernel.value
            )

        sizes = []
        for length in (64, 128):
            mechanism = built(max_length=length)
            sizes.append([bytes_held(f, length) for f in (contracted, whole)])
        growth = np.divide(*reversed(sizes))
        self.assertBetween(growth[0], 1.5, 4.0)
        self.assertBetween(growth[1], 6.0, 8.0)

    @parameterized.parameters(False, True)
    def test_as_the_output_map(self, is_causal):
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
        # Cached, it has the output's size too.
        cache = layer.attention.init_cache(2, 6)
        for index in range(6 if is_causal else 0):
            step = x[:, index : index + 1]
            cache = layer.update_cache(cache, step, index)
            cached, _ = layer.attend(step, *cache, index=index)
            self.assert_all_close(
                cached, output[:, index : index + 1], 1e-4, 1e-4
            )

    @parameterized.parameters(False, True)
    def test_sees_no_padding(self, is_causal):
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
        cache = mechanism.make_cache(*arguments[1:], padding_mask=is_real)
        filler, _ = mechanism.attend(arguments[0], cache)
        expected = explicit(mechanism, *arguments, False, is_real)
        self.assert_all_close(filler, expected, 1e-4, 1e-4)

    def test_cached_equals_uncached(self):
        self.check_cached_equals_uncached(
            built(), heads(5), heads(5), heads(5), tolerance=1e-4
        )

    def test_a_column_of_the_tensor_is_attention_without_softmax(self):
        # The paper's corollary: one head's attention is in the tensor. With a
        # map that reads off "j attends to m = j", and values that count.
        mechanism = built(max_length=5)
        queries, keys = heads(5), heads(5)
        kernel = np.zeros((3, 5, 5, 4), "float32")
        for place in range(4):
            kernel[:, place, :, place] = np.eye(5)[place]
        mechanism.set_weights([np.ones((1, 3, 4)), kernel])
        filler, _ = mechanism(queries, keys, np.ones_like(keys))
        products = np.einsum("bihr,bjhr->bihj", queries, keys)
        self.assert_all_close(filler, products[..., :4], 1e-5)

    @pytest.mark.slow
    def test_as_a_part_of_attention(self):
        x = RNG.normal(size=(2, 4, 8)).astype("float32")
        self.run_layer_test(
            TPMultiHeadAttention,
            {
                "num_heads": 2,
                "key_dim": 3,
                "attention": "multi_linear",
                "attention_options": {"max_length": 8, "num_cores": 2},
            },
            inputs=[x, x],
            expected_output_shape=x.shape,
            expected_weight_count=4 * 54 + 56 + 2 * 64 * 3 + 2 * 2 * 3,
            takes_keras_masks=False,
        )

    def test_what_it_does_not_take(self):
        for options in (
            {"max_length": 0},
            {"num_cores": 1.5},
            {"output_dim": 0},
            {"sliding_window": 3},
        ):
            with self.assertRaises(ValueError):
                MultiLinearAttention(**options)
        with self.assertRaises(ValueError):
            MultiLinearAttention().build(*2 * [(1, 2, 3, 4)], (1, 2, 3, 5))
        options = {"max_length": 8, "output_dim": 5}
        with self.assertRaises(ValueError):
            TPMultiHeadAttention(
                2, 3, attention="multi_linear", attention_options=options
            )
        with self.assertRaises(ValueError):
            TPMultiHeadAttention(
                2,
                3,
                binding="none",
                attention="multi_linear",
                attention_options=options,
            ).build(*2 * [(1, 2, 6)])
        mechanism = built()
        with self.assertRaises(ValueError):
            mechanism(heads(9), heads(9), heads(9))
        with self.assertRaises(ValueError):
            mechanism.init_cache(2, max_length=9)
        with self.assertRaises(ValueError):
            mechanism(
                *3 * [heads(5)], attention_mask=np.ones((2, 1, 5, 5), bool)
            )

    def test_takes_lengths_that_are_not_known(self):
        layer = TPMultiHeadAttention(2, 3, attention="multi_linear")
        inputs = keras.Input((None, 8))
        model = keras.Model(inputs, layer(inputs, inputs, use_causal_mask=True))
        for length in (2, 6):
            x = RNG.normal(size=(2, length, 8)).astype("float32")
            self.assert_all_close(model(x), layer(x, x, use_causal_mask=True))

import json

import keras
import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.refusals import refused
from tpt_keras.layers import RelativeAttention
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers.bindings import DiscreteBinding

RNG = np.random.default_rng(5)
# Batch 2, 4 queries of size 8, 5 values of size 6, keys of size 7.
QUERY = RNG.normal(size=(2, 4, 8)).astype("float32")
VALUE = RNG.normal(size=(2, 5, 6)).astype("float32")
KEY = RNG.normal(size=(2, 5, 7)).astype("float32")
ROWS = RNG.normal(size=(3, 2, 4, 8)).astype("float32")
ATTENTION_MASK = RNG.random((2, 4, 5)) < 0.5
# Every query attends somewhere.
ATTENTION_MASK[:, :, 0] = True
CAUSAL_MASK = np.tril(np.ones((4, 5), "bool"))


def convolution(filler, role):
    """Plate's sum (1995), one element after the other."""
    size = len(filler)
    return [
        sum(filler[j] * role[(k - j) % size] for j in range(size))
        for k in range(size)
    ]


# The bound vector of a filler and the output of the role map.
BOUND = {
    "none": lambda filler, role: filler,
    "hadamard": lambda filler, role: filler * role,
    "tensor": lambda filler, role: np.outer(filler, role).ravel(),
    "gated": lambda filler, role: filler / (1.0 + np.exp(-role)),
    "circular_convolution": lambda filler, role: convolution(
        filler, role / np.sqrt(len(role))
    ),
}


def expected_attention(layer, query, value, key, mask, binding):
    """Equations 1 to 4 of the paper, one head and one query at a time."""
    dense = {
        name: getattr(layer, f"{name}_dense")
        for name in ("query", "key", "value", "role", "output")
    }
    weights = {name: x.get_weights() for name, x in dense.items() if x}
    output_kernel, output_bias = weights["output"]
    outputs = np.zeros((*query.shape[:2], *output_bias.shape), "float32")
    outputs += output_bias
    scores = np.zeros(
        (len(query), layer.num_heads, query.shape[1], value.shape[1]), "float32"
    )

    def affine(x, name, head):
        kernel, bias = weights[name]
        return x @ kernel[:, head] + bias[head]

    for row, head, position in np.ndindex(*scores.shape[:3]):
        q = affine(query[row, position], "query", head)
        k = affine(key[row], "key", head)
        v = affine(value[row], "value", head)
        logits = k @ q / np.sqrt(layer.key_dim)
        logits = np.where(mask[row, position], logits, -np.inf)
        exponentials = np.exp(logits - np.max(logits))
        scores[row, head, position] = exponentials / np.sum(exponentials)
        role = None
        if "role" in weights:
            role = affine(query[row, position], "role", head)
        bound = BOUND[binding](scores[row, head, position] @ v, role)
        outputs[row, position] += np.tensordot(bound, output_kernel[head], 1)
    return outputs, scores


class TPMultiHeadAttentionTest(LayerTestCase):
    @parameterized.named_parameters(
        # Queries 8 to 2 * 3, keys and values 6 to 2 * 3, output 2 * 3 to 8.
        ("tensor", {"binding": "tensor"}, {}, 192 + 2 * 9 * 8 + 8),
        (
            "no_defaults",
            {
                "value_dim": 5,
                "dropout": 0.2,
                "use_bias": False,
                "output_shape": 8,
                "kernel_initializer": "he_normal",
                "bias_initializer": "ones",
                "kernel_regularizer": "l2",
                "bias_regularizer": "l1",
                # Keras 3.13 cannot compute "l1" in bfloat16.
                "activity_regularizer": "l2",
                "kernel_constraint": "max_norm",
                "bias_constraint": "non_neg",
                "seed": 3,
            },
            {"use_causal_mask": True},
            8 * 6 + 6 * 6 + 6 * 10 + 8 * 10 + 10 * 8,
        ),
    )
    @pytest.mark.slow_on_jax
    def test_layer(self, init_kwargs, call_kwargs, count):
        self.run_layer_test(
            TPMultiHeadAttention,
            {"num_heads": 2, "key_dim": 3, **init_kwargs},
            inputs=[QUERY, VALUE],
            call_kwargs=call_kwargs,
            expected_output_shape=(2, 4, 8),
            expected_weight_count=count,
            # A softmax ignores what is added to all of its logits.
            untrained_weights=["key/bias"],
        )

    @parameterized.product(
        binding=list(BOUND),
        init_kwargs=[{}, {"value_dim": 4, "output_shape": (2, 5)}],
    )
    def test_equals_the_paper(self, binding, init_kwargs):
        layer = TPMultiHeadAttention(
            2, 3, binding=binding, bias_initializer="normal", **init_kwargs
        )
        output, scores = layer(
            QUERY,
            VALUE,
            KEY,
            attention_mask=ATTENTION_MASK,
            return_attention_scores=True,
        )
        expected, expected_scores = expected_attention(
            layer, QUERY, VALUE, KEY, ATTENTION_MASK, binding
        )
        self.assert_all_close(scores, expected_scores)
        self.assert_all_close(output, expected)

    def test_query_mask_in_a_batch_of_one(self):
        # With as many queries as keys, `ops.add` of Keras would take this mask
        # for a bias of the last axis.
        layer = TPMultiHeadAttention(2, 3)
        x, mask = QUERY[:1], np.array([[True, True, False, False]])
        _, expected = layer(x, x, return_attention_scores=True)
        _, scores = layer(x, x, query_mask=mask, return_attention_scores=True)
        self.assert_all_close(scores[:, :, :2], expected[:, :, :2])
        masked = scores[:, :, 2:]
        self.assert_all_close(masked, np.full(masked.shape, 0.25, "float32"))

    @parameterized.parameters("hadamard", "tensor")
    def test_attention_axis_attends_within_rows(self, binding):
        layer = TPMultiHeadAttention(2, 3, binding=binding, attention_axes=2)
        plain = TPMultiHeadAttention(2, 3, binding=binding)
        layer.build(ROWS.shape, ROWS.shape)
        plain.build(ROWS[:, 0].shape, ROWS[:, 0].shape)
        plain.set_weights(layer.get_weights())
        mask = RNG.random((3, 2, 4)) < 0.5
        mask[..., 0] = True
        output = layer(ROWS, ROWS, value_mask=mask, use_causal_mask=True)
        for index in range(2):
            row, row_mask = ROWS[:, index], mask[:, index]
            expected = plain(
                row, row, value_mask=row_mask, use_causal_mask=True
            )
            self.assert_all_close(output[:, index], expected)

    @parameterized.parameters((QUERY, {}), (ROWS, {"attention_axes": 2}))
    def test_returns_intermediates(self, x, init_kwargs):
        layer = TPMultiHeadAttention(2, 3, value_dim=5, **init_kwargs)
        both = {"return_attention_scores": True, "return_intermediates": True}
        output, weights, found = outputs = layer(x, x, **both)
        self.assert_all_equal(weights, found["weights"])
        self.assert_all_close(found["roles"], layer.role_dense(x))
        self.assert_all_close(
            layer.output_dense(found["fillers"] * found["roles"]), output
        )
        self.assert_all_close(layer(x, x), output)
        inputs = keras.Input((*[None] * (x.ndim - 2), 8))
        symbolic = layer(inputs, inputs, **both)
        model = keras.Model(inputs, symbolic)
        for spec, actual, other in zip(
            *map(keras.tree.flatten, (symbolic, model(x), outputs))
        ):
            self.assertEqual(len(spec.shape), len(other.shape))
            self.assert_all_close(actual, other)

    def test_instances_equal_names(self):
        named = TPMultiHeadAttention(
            2,
            3,
            attention="relative",
            attention_options={"max_distance": 2},
            binding="discrete",
            binding_options={"num_roles": 4},
        )
        given = TPMultiHeadAttention(
            2,
            3,
            attention=RelativeAttention(max_distance=2),
            binding=DiscreteBinding(num_roles=4),
        )
        revived = keras.saving.deserialize_keras_object(
            json.loads(json.dumps(keras.saving.serialize_keras_object(given)))
        )
        expected = named(QUERY, VALUE)
        for layer in (given, revived):
            layer.build(QUERY.shape, VALUE.shape)
            layer.set_weights(named.get_weights())
            self.assert_all_close(layer(QUERY, VALUE), expected)

    @parameterized.parameters("bfloat16", "float16", "float64")
    def test_default_dtype_does_not_matter(self, floatx):
        if floatx == "float64" and keras.backend.backend() == "jax":
            self.skipTest("JAX has no float64 by default.")
        mask = np.tril(np.ones((1, QUERY.shape[1], QUERY.shape[1]), bool), -1)
        layer = TPMultiHeadAttention(2, 3, seed=1)
        expected = layer(QUERY, QUERY, attention_mask=mask)
        before = keras.config.floatx()
        keras.config.set_floatx(floatx)
        try:
            found = layer(QUERY, QUERY, attention_mask=mask)
            own = TPMultiHeadAttention(2, 3, dtype=floatx)
            output = own(QUERY, QUERY, attention_mask=mask)
        finally:
            keras.config.set_floatx(before)
        self.assert_all_close(found, expected)
        self.assertEqual(keras.backend.standardize_dtype(output.dtype), floatx)
        # Also the first query's, which sees no key.
        self.assertTrue(np.all(np.isfinite(ops.convert_to_numpy(output))))

    def test_options_override_arguments(self):
        options = {"sliding_window": 2}
        layer = TPMultiHeadAttention(2, 3, attention_options=options)
        plain = TPMultiHeadAttention(2, 3, **options)
        for each in (layer, plain):
            each.build(QUERY.shape, QUERY.shape)
        layer.set_weights(plain.get_weights())
        self.assert_all_equal(layer(QUERY, QUERY), plain(QUERY, QUERY))

    @parameterized.parameters(
        *(("num_heads", 0), ("key_dim", 0), ("value_dim", 0)),
        *(("dropout", 1.5), ("dropout", "0.1"), ("sliding_window", 0)),
    )
    def test_invalid_value_is_named(self, field, value):
        with refused(field):
            TPMultiHeadAttention(**{"num_heads": 2, "key_dim": 3, field: value})

    def test_numbers_of_numpy(self):
        two = np.int64(2)
        layer = TPMultiHeadAttention(
            two, two, two, np.float32(0), True, np.int64(6), np.int64(1)
        )
        config = json.dumps(keras.saving.serialize_keras_object(layer))
        revived = keras.saving.deserialize_keras_object(json.loads(config))
        for each in (layer, revived):
            self.assertEqual(each(QUERY, VALUE).shape[-1], 6)

    @parameterized.named_parameters(
        ("features", (2, 4, 8), (2, 2, 7), (2,)),
        ("lengths", (2, 4, 8), (2, 2, 8), (2, 1, 7)),
        ("high_rank", (2, 4, 2, 3, 8), (2, 1, 1, 5, 8), (2, 1, 15, 5, 2)),
        ("ranks", (2, 4, 8), (2, 4, 2, 8), (2, 4, 2, 8)),
        ("no_length", (2, 8), (2, 8), (2, 8)),
    )
    def test_mismatched_shapes_are_refused(self, *shapes):
        layer = TPMultiHeadAttention(4, 2)
        for compute in (
            lambda: layer.compute_output_shape(*shapes),
            lambda: layer.build(*shapes),
            lambda: layer(*map(np.ones, shapes)),
        ):
            with self.assertRaises(ValueError):
                compute()

    @parameterized.parameters(
        ({"attention_axes": 0}, {}),
        ({"attention_axes": 3}, {}),
        ({"attention_axes": -4}, {}),
        ({"attention_axes": (1, -3)}, {}),
        # An order needs a single axis.
        ({}, {"use_causal_mask": True}),
        ({"sliding_window": 2}, {}),
        ({"attention": "relative"}, {}),
        ({"attention": "multi_linear"}, {"return_attention_scores": True}),
    )
    def test_invalid_calls_are_refused(self, kwargs, call_kwargs):
        with self.assertRaises(ValueError):
            TPMultiHeadAttention(2, 3, **kwargs)(ROWS, ROWS, **call_kwargs)

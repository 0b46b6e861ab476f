import json

import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layers.attention_maps import copy_maps
from tests.layers.attention_maps import map_of_products
from tpt_keras.layers import RelativeAttention
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers.bindings import DiscreteBinding

RNG = np.random.default_rng(5)
# Batch 2, 4 queries of size 8, 5 values of size 6, keys of size 7.
QUERY = RNG.normal(size=(2, 4, 8)).astype("float32")
VALUE = RNG.normal(size=(2, 5, 6)).astype("float32")
KEY = RNG.normal(size=(2, 5, 7)).astype("float32")

QUERY_MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], "bool")
VALUE_MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], "bool")
KEY_MASK = np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1]], "bool")
ATTENTION_MASK = RNG.random((2, 4, 5)) < 0.5
# What a query that may attend nowhere attends to is nobody's business.
ATTENTION_MASK[:, :, 0] = True
CAUSAL_MASK = np.tril(np.ones((4, 5), "bool"))


def make_keras_layer(num_heads=2, key_dim=3, **kwargs):
    """A Keras layer whose biases are not zero."""
    return keras.layers.MultiHeadAttention(
        num_heads, key_dim, bias_initializer="random_normal", **kwargs
    )


def like(keras_layer, query, value, key=None, **kwargs):
    """Our layer with the weights of a Keras layer, which has been built."""
    layer = TPMultiHeadAttention(2, 3, binding="none", **kwargs)
    layer.build(query.shape, value.shape, None if key is None else key.shape)
    layer.set_weights(keras_layer.get_weights())
    return layer


def reference(layer, query, value, key, mask, binding):
    """Equations 1 to 4 of the paper, one head and one query at a time."""
    weights = {
        dense.name: dense.get_weights()
        for dense in (
            layer.query_dense,
            layer.key_dense,
            layer.value_dense,
            layer.role_dense,
            layer.output_dense,
        )
        if dense is not None
    }
    output_kernel, output_bias = weights["attention_output"]
    outputs = np.zeros((*query.shape[:2], *output_bias.shape), "float32")
    outputs += output_bias
    scores = np.zeros(
        (len(query), layer.num_heads, query.shape[1], value.shape[1]),
        "float32",
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
        bound = scores[row, head, position] @ v
        if binding != "none":
            r = affine(query[row, position], "role", head)
            if binding == "hadamard":
                bound = bound * r
            else:
                bound = np.outer(bound, r).ravel()
        outputs[row, position] += np.tensordot(bound, output_kernel[head], 1)
    return outputs, scores


class TPMultiHeadAttentionTest(LayerTestCase):
    @parameterized.named_parameters(
        # Queries 8 to 2 * 3, keys and values 6 to 2 * 3, output 2 * 3 to 8.
        ("none", {"binding": "none"}, {}, 54 + 42 + 42 + 56),
        ("hadamard", {}, {}, 54 + 42 + 42 + 54 + 56),
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
                "activity_regularizer": "l1",
                "kernel_constraint": "max_norm",
                "bias_constraint": "non_neg",
                "seed": 3,
            },
            {"use_causal_mask": True},
            8 * 6 + 6 * 6 + 6 * 10 + 8 * 10 + 10 * 8,
        ),
    )
    def test_layer(self, init_kwargs, call_kwargs, count):
        self.run_layer_test(
            TPMultiHeadAttention,
            {"num_heads": 2, "key_dim": 3, **init_kwargs},
            inputs=[QUERY, VALUE],
            call_kwargs=call_kwargs,
            expected_output_shape=(2, 4, 8),
            expected_weight_count=count,
            # A softmax is the same whatever is added to all of its logits.
            untrained_weights=["key/bias"],
        )

    @parameterized.named_parameters(
        ("no_mask", {}),
        ("attention_mask", {"attention_mask": ATTENTION_MASK}),
        ("broadcast_mask", {"attention_mask": ATTENTION_MASK[:, :1]}),
        ("integer_mask", {"attention_mask": ATTENTION_MASK.astype("int32")}),
        ("value_mask", {"value_mask": VALUE_MASK}),
        ("key_mask", {"key_mask": KEY_MASK}),
        ("causal", {"use_causal_mask": True}),
        (
            "all_of_them",
            {
                "attention_mask": ATTENTION_MASK,
                "value_mask": VALUE_MASK,
                "key_mask": KEY_MASK,
                "use_causal_mask": True,
            },
        ),
    )
    def test_unbound_equals_keras(self, masks):
        keras_layer = make_keras_layer()
        expected, expected_scores = keras_layer(
            QUERY, VALUE, KEY, return_attention_scores=True, **masks
        )
        layer = like(keras_layer, QUERY, VALUE, KEY)
        output, scores = layer(
            QUERY, VALUE, KEY, return_attention_scores=True, **masks
        )
        self.assert_all_close(output, expected)
        self.assert_all_close(scores, expected_scores)
        # Without the scores Keras takes another, fused way.
        self.assert_all_close(
            layer(QUERY, VALUE, KEY, **masks),
            keras_layer(QUERY, VALUE, KEY, **masks),
        )

    @parameterized.named_parameters(
        ("value_dim", {"value_dim": 5}, (8,)),
        ("output_shape", {"output_shape": 9}, (9,)),
        ("output_axes", {"output_shape": (2, 5)}, (2, 5)),
        ("no_bias", {"use_bias": False}, (8,)),
        ("dropout", {"dropout": 0.3}, (8,)),
    )
    def test_unbound_equals_keras_with(self, init_kwargs, output_axes):
        keras_layer = make_keras_layer(**init_kwargs)
        expected, expected_scores = keras_layer(
            QUERY, VALUE, return_attention_scores=True
        )
        layer = like(keras_layer, QUERY, VALUE, **init_kwargs)
        output, scores = layer(QUERY, VALUE, return_attention_scores=True)
        self.assert_all_close(output, expected)
        self.assert_all_close(scores, expected_scores)
        self.assertEqual(tuple(output.shape), (2, 4, *output_axes))
        self.assertEqual(
            layer.compute_output_shape(QUERY.shape, VALUE.shape),
            (2, 4, *output_axes),
        )

    @parameterized.parameters(False, True)
    def test_takes_keras_masks_as_keras_does(self, use_causal_mask):
        ids = [
            np.array([[3, 1, 2, 0], [4, 1, 0, 0]]),
            np.array([[1, 0, 4, 2, 0], [3, 1, 0, 4, 0]]),
        ]
        embedding = keras.layers.Embedding(
            6, 8, embeddings_initializer="normal", mask_zero=True
        )

        def run(layer):
            inputs = [keras.Input((None,)) for _ in ids]
            output = layer(
                *map(embedding, inputs), use_causal_mask=use_causal_mask
            )
            output = keras.Model(inputs, output)(ids)
            return ops.convert_to_numpy(output)[ids[0] != 0]

        keras_layer = make_keras_layer()
        expected = run(keras_layer)
        vectors = [embedding(x) for x in ids]
        layer = like(keras_layer, *vectors)
        actual = run(layer)
        self.assert_all_close(actual, expected)
        # The masks did something.
        unmasked = ops.convert_to_numpy(
            layer(
                *map(ops.convert_to_numpy, vectors),
                use_causal_mask=use_causal_mask,
            )
        )[ids[0] != 0]
        self.assertGreater(np.max(np.abs(unmasked - actual)), 1e-4)

    def test_query_mask(self):
        # Keras drops a query mask that is passed by hand. It has no influence
        # on the queries that are not masked.
        layer = TPMultiHeadAttention(2, 3)
        expected = ops.convert_to_numpy(layer(QUERY, VALUE))
        output, scores = layer(
            QUERY, VALUE, query_mask=QUERY_MASK, return_attention_scores=True
        )
        output = ops.convert_to_numpy(output)
        self.assert_all_close(output[QUERY_MASK], expected[QUERY_MASK])
        scores = np.moveaxis(ops.convert_to_numpy(scores), 1, 2)
        masked = scores[~QUERY_MASK]
        self.assert_all_close(masked, np.full(masked.shape, 0.2, "float32"))

    def test_masks_of_one_query_in_a_batch_of_one(self):
        # As many queries as keys, and a mask with the queries' axis alone:
        # Keras's `ops.add` would take it for a bias of the last axis.
        layer = TPMultiHeadAttention(2, 3)
        x = QUERY[:1]
        mask = np.array([[True, True, False, False]])
        for masks in (
            {"query_mask": mask},
            {"attention_mask": mask[:, :, None]},
        ):
            _, scores = layer(x, x, return_attention_scores=True, **masks)
            _, expected = layer(x, x, return_attention_scores=True)
            scores, expected = map(ops.convert_to_numpy, (scores, expected))
            self.assert_all_close(scores[:, :, :2], expected[:, :, :2])
            self.assert_all_close(
                scores[:, :, 2:], np.full_like(scores[:, :, 2:], 0.25)
            )

    @parameterized.named_parameters(
        ("head", RNG.random((2, 2, 4, 5)) < 0.7),
        ("broadcast_batch", RNG.random((1, 2, 4, 5)) < 0.7),
        ("two_axes", CAUSAL_MASK),
    )
    def test_attention_masks_of_other_ranks(self, mask):
        _, scores = TPMultiHeadAttention(2, 3)(
            QUERY, VALUE, attention_mask=mask, return_attention_scores=True
        )
        scores = ops.convert_to_numpy(scores)
        mask = np.broadcast_to(mask, scores.shape)
        is_any = np.broadcast_to(mask.any(-1, keepdims=True), scores.shape)
        self.assertFalse(np.any(scores[~mask & is_any]))
        self.assertTrue(np.all(scores[mask]))

    def test_head_masks_and_padding_masks_together(self):
        mask = np.ones((2, 2, 4, 5), "bool")
        mask[:, 1, :, 0] = False
        _, scores = TPMultiHeadAttention(2, 3)(
            QUERY,
            VALUE,
            attention_mask=mask,
            value_mask=VALUE_MASK,
            use_causal_mask=True,
            return_attention_scores=True,
        )
        expected = mask & VALUE_MASK[:, None, None] & CAUSAL_MASK
        # The first query of the second head may attend nowhere.
        self.assert_all_equal(
            (ops.convert_to_numpy(scores) > 0)[:, :, 1:], expected[:, :, 1:]
        )

    @parameterized.product(
        binding=["none", "hadamard", "tensor"],
        init_kwargs=[{}, {"value_dim": 5, "output_shape": (2, 5)}],
    )
    def test_equals_the_paper(self, binding, init_kwargs):
        layer = TPMultiHeadAttention(
            2,
            3,
            binding=binding,
            bias_initializer="random_normal",
            **init_kwargs,
        )
        output, scores = layer(
            QUERY,
            VALUE,
            KEY,
            attention_mask=ATTENTION_MASK,
            return_attention_scores=True,
        )
        expected, expected_scores = reference(
            layer, QUERY, VALUE, KEY, ATTENTION_MASK, binding
        )
        self.assert_all_close(scores, expected_scores)
        self.assert_all_close(output, expected)

    def test_tensor_binding_holds_hadamard_binding_in_its_diagonal(self):
        hadamard = TPMultiHeadAttention(2, 3)
        tensor = TPMultiHeadAttention(2, 3, binding="tensor")
        expected = hadamard(QUERY, VALUE)
        tensor.build(QUERY.shape, VALUE.shape)
        copy_maps(hadamard, tensor)
        kernel, bias = hadamard.output_dense.get_weights()
        tensor.output_dense.set_weights([map_of_products(kernel), bias])
        self.assert_all_close(tensor(QUERY, VALUE), expected)

    def test_options_have_the_last_word(self):
        layer = TPMultiHeadAttention(
            2, 3, attention_options={"sliding_window": 2}
        )
        plain = TPMultiHeadAttention(2, 3, sliding_window=2)
        for each in (layer, plain):
            each.build(QUERY.shape, QUERY.shape)
        layer.set_weights(plain.get_weights())
        self.assert_all_equal(layer(QUERY, QUERY), plain(QUERY, QUERY))
        self.assertEqual(layer.attention.sliding_window, 2)

    def test_queries_may_start_behind_a_memory(self):
        layer = TPMultiHeadAttention(2, 3)
        whole = layer(QUERY, QUERY, use_causal_mask=True)
        last, sources = keras.Input((None, 8)), keras.Input((None, 8))
        options = {"use_causal_mask": True, "start_index": 2}
        output = layer(last, sources, **options)
        model = keras.Model([last, sources], output)
        self.assert_all_close(model([QUERY[:, 2:], QUERY]), whole[:, 2:])

    def test_role_is_taken_from_the_query(self):
        layer = TPMultiHeadAttention(2, 3, bias_initializer="random_normal")
        layer.build(QUERY.shape, VALUE.shape)
        for weight in (layer.query_dense.kernel, layer.query_dense.bias):
            weight.assign(np.zeros(weight.shape))
        # All queries attend alike, so that only roles tell them apart.
        output, scores = layer(QUERY, VALUE, return_attention_scores=True)
        self.assert_all_close(scores, np.full(scores.shape, 0.2, "float32"))
        output = ops.convert_to_numpy(output)
        self.assertGreater(np.ptp(output, axis=1).max(), 0.01)

    def test_returns_roles(self):
        layer = TPMultiHeadAttention(2, 3, value_dim=5)
        both = {"return_attention_scores": True, "return_roles": True}
        output, scores, roles = layer(QUERY, VALUE, **both)
        self.assert_all_close(roles, layer.role_dense(QUERY))
        expected = layer(QUERY, VALUE, return_attention_scores=True)
        self.assert_all_equal(output, expected[0])
        self.assert_all_equal(scores, expected[1])
        self.assert_all_equal(layer(QUERY, VALUE, return_roles=True)[1], roles)
        inputs = [keras.Input((None, size)) for size in (8, 6)]
        symbolic = layer(*inputs, **both)
        self.assertEqual(tuple(symbolic[2].shape), (None, None, 2, 5))
        model = keras.Model(inputs, symbolic)
        self.assert_all_close(model([QUERY, VALUE])[2], roles)

    def test_roles_of_more_axes(self):
        layer = TPMultiHeadAttention(2, 3, attention_axes=2)
        x = QUERY.reshape(2, 2, 2, 8)
        _, roles = layer(x, x, return_roles=True)
        self.assert_all_close(roles, layer.role_dense(x))

    def test_roles_of_a_binding_without(self):
        layer = TPMultiHeadAttention(2, 3, binding="none")
        with self.assertRaises(ValueError):
            layer(QUERY, VALUE, return_roles=True)

    def test_attend_over_kept_keys_and_values(self):
        layer = TPMultiHeadAttention(2, 3, value_dim=5)
        expected, expected_scores = layer(
            QUERY,
            VALUE,
            KEY,
            attention_mask=ATTENTION_MASK,
            return_attention_scores=True,
        )
        key_heads, value_heads = layer.project_keys_and_values(VALUE, KEY)
        self.assertEqual(tuple(key_heads.shape), (2, 2, 5, 3))
        self.assertEqual(tuple(value_heads.shape), (2, 2, 5, 5))
        output, scores = layer.attend(
            QUERY, key_heads, value_heads, mask=ATTENTION_MASK
        )
        self.assert_all_close(output, expected)
        self.assert_all_close(scores, expected_scores)

    def test_scores_of_a_functional_model(self):
        query, value = keras.Input((None, 8)), keras.Input((None, 6))
        layer = TPMultiHeadAttention(2, 3)
        output, scores = layer(query, value, return_attention_scores=True)
        self.assertEqual(tuple(output.shape), (None, None, 8))
        self.assertEqual(tuple(scores.shape), (None, 2, None, None))
        outputs = keras.Model([query, value], [output, scores])([QUERY, VALUE])
        expected = layer(QUERY, VALUE, return_attention_scores=True)
        for actual, other in zip(outputs, expected):
            self.assert_all_close(actual, other)

    def test_dropout_only_when_training(self):
        layer = TPMultiHeadAttention(2, 3, dropout=0.5)
        without = TPMultiHeadAttention(2, 3)
        expected = without(QUERY, VALUE)
        layer.build(QUERY.shape, VALUE.shape)
        layer.set_weights(without.get_weights())
        self.assert_all_close(layer(QUERY, VALUE), expected)
        self.assert_all_close(layer(QUERY, VALUE, training=False), expected)
        once, again = (
            ops.convert_to_numpy(layer(QUERY, VALUE, training=True))
            for _ in range(2)
        )
        self.assertGreater(np.max(np.abs(once - again)), 1e-3)

    def test_drops_attention_weights(self):
        # Values are one and the maps identities: the output is the sum of the
        # weights that are left, each doubled.
        layer = TPMultiHeadAttention(
            1, 8, dropout=0.5, binding="none", kernel_initializer="identity"
        )
        x = np.ones((3, 6, 8), "float32")
        dropped = ops.convert_to_numpy(layer(x, x, training=True))
        kept = 3.0 * dropped
        self.assert_all_close(kept, np.round(kept), atol=1e-4)
        self.assertGreater(len(np.unique(np.round(kept))), 1)
        self.assert_all_close(
            dropped, np.broadcast_to(dropped[..., :1], x.shape)
        )

    def test_seed_fixes_the_dropout(self):
        weights = None
        outputs = []
        for seed in (1, 1, 2):
            layer = TPMultiHeadAttention(2, 3, dropout=0.5, seed=seed)
            layer.build(QUERY.shape, VALUE.shape)
            weights = layer.get_weights() if weights is None else weights
            layer.set_weights(weights)
            outputs.append(
                ops.convert_to_numpy(layer(QUERY, VALUE, training=True))
            )
        self.assert_all_equal(outputs[0], outputs[1])
        self.assertGreater(np.max(np.abs(outputs[0] - outputs[2])), 1e-3)

    def test_no_two_maps_start_alike(self):
        layer = TPMultiHeadAttention(2, 3)
        layer.build(QUERY.shape, QUERY.shape)
        kernels = [
            dense.get_weights()[0]
            for dense in (
                layer.query_dense,
                layer.key_dense,
                layer.value_dense,
                layer.role_dense,
            )
        ]
        for index, kernel in enumerate(kernels):
            for other in kernels[:index]:
                self.assertFalse(np.array_equal(kernel, other))

    def test_parts_are_made_once(self):
        layer = TPMultiHeadAttention(2, 3)
        parts = layer.attention, layer.binding
        layer(QUERY, VALUE)
        self.assertEqual((layer.attention, layer.binding), parts)

    def test_takes_instances_as_names(self):
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

    def test_unknown_binding(self):
        with self.assertRaises(ValueError):
            TPMultiHeadAttention(2, 3, binding="tpr")

    @parameterized.product(
        name=["num_heads", "key_dim", "value_dim"], size=[0, -1, 2.0]
    )
    def test_sizes_that_make_no_sense(self, name, size):
        sizes = {"num_heads": 2, "key_dim": 3, "value_dim": 4, name: size}
        with self.assertRaises(ValueError):
            TPMultiHeadAttention(**sizes)


def shaped(*dims, features):
    """Batch 3, some lengths, some features."""
    return RNG.normal(size=(3, *dims, features)).astype("float32")


def attention_mask(*shape):
    """A random mask that lets every query attend somewhere."""
    mask = RNG.random(shape) < 0.5
    mask[..., 0] = True
    return mask


# Query's lengths, value's lengths, the mask's shape, attention axes, arguments.
HIGH_RANKS = [
    # As Keras tests its own layer.
    ("mask2", (3, 4), (3, 2), (4, 2), 2, {}),
    ("mask3", (3, 4), (3, 2), (3, 4, 2), (2,), {}),
    ("mask4", (3, 4), (3, 2), (3, 3, 4, 2), (2,), {}),
    ("two_axes", (3, 4), (3, 2), (3, 3, 4, 3, 2), (1, 2), {}),
    ("two_of_three", (5, 3, 4), (5, 3, 2), (3, 4, 3, 2), (2, 3), {}),
    (
        "two_of_three_full_mask",
        (5, 3, 4),
        (5, 3, 2),
        (3, 5, 3, 4, 3, 2),
        (2, 3),
        {},
    ),
    ("all_axes", (4, 2, 3), (1, 1, 5), None, None, {}),
    (
        "all_axes_projected",
        (2, 3),
        (1, 5),
        None,
        None,
        {"output_shape": (3, 2)},
    ),
    # And more.
    ("first_axis", (3, 4), (5, 4), (3, 4, 3, 5), 1, {}),
    ("negative_axis", (3, 4), (3, 2), (4, 2), -2, {}),
    ("axes_turned_round", (3, 4), (2, 5), None, (2, 1), {}),
    ("first_and_last", (2, 3, 4), (4, 3, 2), None, (1, 3), {"value_dim": 5}),
    ("head_mask", (3, 4), (3, 2), (3, 3, 2, 4, 2), 2, {"use_bias": False}),
    ("broadcast_mask", (3, 4), (3, 2), (1, 1, 4, 2), 2, {"output_shape": 9}),
]


class HighRankTest(LayerTestCase):
    """Inputs with more axes than batch, length and features."""

    @parameterized.named_parameters(HIGH_RANKS)
    def test_unbound_equals_keras(
        self, target_dims, source_dims, mask_shape, axes, init_kwargs
    ):
        query = shaped(*target_dims, features=8)
        value = shaped(*source_dims, features=6)
        key = shaped(*source_dims, features=7)
        masks = {}
        if mask_shape is not None:
            masks["attention_mask"] = attention_mask(*mask_shape)
        init_kwargs = {"attention_axes": axes, **init_kwargs}
        keras_layer = make_keras_layer(**init_kwargs)
        expected, expected_scores = keras_layer(
            query, value, key, return_attention_scores=True, **masks
        )
        layer = like(keras_layer, query, value, key, **init_kwargs)
        output, scores = layer(
            query, value, key, return_attention_scores=True, **masks
        )
        self.assert_all_close(output, expected)
        self.assert_all_close(scores, expected_scores)
        shapes = [query.shape, value.shape, key.shape]
        for each in (shapes, map(list, shapes)):
            self.assertEqual(
                layer.compute_output_shape(*each), tuple(expected.shape)
            )
        # And where no length is known before the call.
        inputs = [
            keras.Input((*[None] * len(target_dims), x.shape[-1]))
            for x in (query, value, key)
        ]
        outputs = layer(*inputs, return_attention_scores=True, **masks)
        self.assertEqual(
            [len(x.shape) for x in outputs],
            [len(expected.shape), len(expected_scores.shape)],
        )
        outputs = keras.Model(inputs, outputs).predict_on_batch(
            [query, value, key]
        )
        self.assert_all_close(outputs[0], expected)
        self.assert_all_close(outputs[1], expected_scores)

    def test_layer(self):
        self.run_layer_test(
            TPMultiHeadAttention,
            {"num_heads": 2, "key_dim": 3, "attention_axes": 2},
            inputs=[shaped(2, 4, features=8), shaped(2, 4, features=8)],
            call_kwargs={"use_causal_mask": True},
            expected_output_shape=(3, 2, 4, 8),
            expected_weight_count=4 * 8 * 6 + 4 * 6 + 6 * 8 + 8,
            untrained_weights=["key/bias"],
            takes_keras_masks=False,
        )

    @parameterized.product(
        binding=["hadamard", "tensor"], masks=["none", "causal", "padding"]
    )
    def test_every_row_is_a_sequence(self, binding, masks):
        query, value = shaped(2, 4, features=8), shaped(2, 5, features=6)
        layer = TPMultiHeadAttention(2, 3, binding=binding, attention_axes=2)
        plain = TPMultiHeadAttention(2, 3, binding=binding)
        layer.build(query.shape, value.shape)
        plain.build(query[:, 0].shape, value[:, 0].shape)
        plain.set_weights(layer.get_weights())
        kwargs, row_kwargs = {}, [{}, {}]
        if masks == "causal":
            kwargs = {"use_causal_mask": True}
            row_kwargs = [kwargs, kwargs]
        elif masks == "padding":
            kwargs = {
                "query_mask": attention_mask(3, 2, 4),
                "value_mask": attention_mask(3, 2, 5),
            }
            row_kwargs = [
                {name: mask[:, row] for name, mask in kwargs.items()}
                for row in range(2)
            ]
        output = layer(query, value, **kwargs)
        for row in range(2):
            self.assert_all_close(
                output[:, row],
                plain(query[:, row], value[:, row], **row_kwargs[row]),
            )

    def test_all_axes_are_one_sequence(self):
        # Keras cannot merge the masks of inputs with several attention axes.
        query, value = shaped(2, 4, features=8), shaped(3, 2, features=6)
        query_mask, value_mask = (
            attention_mask(3, 2, 4),
            attention_mask(3, 3, 2),
        )
        layer = TPMultiHeadAttention(2, 3)
        output = layer(
            query, value, query_mask=query_mask, value_mask=value_mask
        )
        plain = TPMultiHeadAttention(2, 3)
        flat = query.reshape(3, 8, 8), value.reshape(3, 6, 6)
        plain.build(*(x.shape for x in flat))
        plain.set_weights(layer.get_weights())
        expected = plain(
            *flat,
            query_mask=query_mask.reshape(3, 8),
            value_mask=value_mask.reshape(3, 6),
        )
        self.assert_all_close(
            ops.reshape(output, (3, 8, 8)), ops.convert_to_numpy(expected)
        )

    def test_takes_keras_masks_as_keras_does(self):
        ids = RNG.integers(1, 6, (3, 2, 5))
        ids[:, 0, 3:] = 0
        ids[1, 1, 4:] = 0
        embedding = keras.layers.Embedding(
            6, 8, embeddings_initializer="normal", mask_zero=True
        )

        def run(layer):
            inputs = keras.Input((None, None), dtype="int32")
            x = embedding(inputs)
            outputs = keras.Model(inputs, layer(x, x))(ids)
            return ops.convert_to_numpy(outputs)[ids != 0]

        keras_layer = make_keras_layer(attention_axes=2)
        expected = run(keras_layer)
        x = ops.convert_to_numpy(embedding(ids))
        layer = like(keras_layer, x, x, attention_axes=2)
        self.assert_all_close(run(layer), expected)
        # The masks did something.
        unmasked = ops.convert_to_numpy(layer(x, x))[ids != 0]
        self.assertGreater(np.max(np.abs(unmasked - expected)), 1e-4)

    @parameterized.parameters({"use_causal_mask": True}, {"sliding_window": 2})
    def test_order_needs_a_single_axis(self, **kwargs):
        call_kwargs = {"use_causal_mask": kwargs.pop("use_causal_mask", False)}
        layer = TPMultiHeadAttention(2, 3, **kwargs)
        x = shaped(2, 4, features=8)
        with self.assertRaises(ValueError):
            layer(x, x, **call_kwargs)


class DropInTest(LayerTestCase):
    """What a user of Keras's layer passes and gets."""

    @parameterized.product(
        sliding_window=[1, 2, 9],
        use_causal_mask=[False, True],
        masks=[{}, {"attention_mask": ATTENTION_MASK}],
    )
    def test_sliding_window(self, sliding_window, use_causal_mask, masks):
        keras_layer = make_keras_layer(sliding_window=sliding_window)
        kwargs = {"use_causal_mask": use_causal_mask, **masks}
        _, expected = keras_layer(
            QUERY, VALUE, return_attention_scores=True, **kwargs
        )
        layer = like(keras_layer, QUERY, VALUE, sliding_window=sliding_window)
        _, scores = layer(QUERY, VALUE, return_attention_scores=True, **kwargs)
        # Where nothing may be attended to is nobody's business.
        sees = self._may_see(sliding_window, use_causal_mask, masks)
        keep = np.broadcast_to(sees.any(-1)[:, None], expected.shape[:-1])
        self.assert_all_close(
            ops.convert_to_numpy(scores)[keep],
            ops.convert_to_numpy(expected)[keep],
        )

    def _may_see(self, sliding_window, use_causal_mask, masks):
        rows, columns = np.indices((4, 5))
        sees = np.abs(rows - columns) < sliding_window
        sees = sees & (CAUSAL_MASK | (not use_causal_mask))
        return sees & masks.get("attention_mask", np.ones((2, 4, 5), "bool"))

    @parameterized.parameters(
        ("float64", 1e-5),
        ("float16", 5e-3),
        ("bfloat16", 5e-2),
        ("mixed_float16", 5e-3),
        ("mixed_bfloat16", 5e-2),
    )
    def test_dtype_policies(self, dtype, tolerance):
        if dtype == "float64" and keras.backend.backend() == "jax":
            self.skipTest("JAX has no float64 unless it is told to")
        keras_layer = make_keras_layer(dtype=dtype)
        expected, expected_scores = keras_layer(
            QUERY, VALUE, return_attention_scores=True, use_causal_mask=True
        )
        layer = like(keras_layer, QUERY, VALUE, dtype=dtype)
        output, scores = layer(
            QUERY, VALUE, return_attention_scores=True, use_causal_mask=True
        )
        for actual, other in ((output, expected), (scores, expected_scores)):
            self.assertEqual(
                keras.backend.standardize_dtype(actual.dtype),
                keras.backend.standardize_dtype(other.dtype),
            )
            self.assert_all_close(
                ops.cast(actual, "float32"),
                ops.cast(other, "float32"),
                atol=tolerance,
                rtol=tolerance,
            )

    @parameterized.named_parameters(
        ("features", (2, 4, 8), (2, 2, 7), (2,)),
        ("lengths", (2, 4, 8), (2, 2, 8), (2, 1, 7)),
        ("high_rank", (2, 4, 2, 3, 8), (2, 1, 1, 5, 8), (2, 1, 15, 5, 2)),
        ("ranks", (2, 4, 8), (2, 4, 2, 8), (2, 4, 2, 8)),
        ("no_length", (2, 8), (2, 8), (2, 8)),
    )
    def test_shapes_that_do_not_match(self, *shapes):
        layer = TPMultiHeadAttention(4, 2)
        for compute in (
            lambda: layer.compute_output_shape(*shapes),
            lambda: layer.build(*shapes),
            lambda: layer(*map(np.ones, shapes)),
        ):
            with self.assertRaises(ValueError):
                compute()

    def test_lengths_that_do_not_match_in_a_later_call(self):
        layer = TPMultiHeadAttention(2, 3)
        layer(QUERY, VALUE, KEY)
        with self.assertRaises(ValueError):
            layer(QUERY, VALUE, KEY[:, :3])

    def test_other_axes_must_be_equal(self):
        layer = TPMultiHeadAttention(2, 3, attention_axes=2)
        with self.assertRaises(ValueError):
            layer(shaped(2, 4, features=8), shaped(3, 4, features=8))

    @parameterized.parameters(0, 3, 4, 5, -1, -4, -5, [(1, 1)], [(1, -3)])
    def test_attention_axes_that_make_no_sense(self, axes):
        layer = TPMultiHeadAttention(2, 3, attention_axes=axes)
        x = shaped(2, 4, features=8)
        with self.assertRaises(ValueError):
            layer(x, x)

    @parameterized.parameters("flash_attention", "use_gate")
    def test_arguments_that_are_refused(self, name):
        with self.assertRaises(ValueError):
            TPMultiHeadAttention(2, 3, **{name: True})
        # Where Keras would not use them either, they are no matter.
        TPMultiHeadAttention(2, 3, **{name: False})

    def test_takes_the_config_of_a_keras_layer(self):
        keras_layer = make_keras_layer(attention_axes=2, value_dim=5)
        x = shaped(2, 4, features=8)
        expected = keras_layer(x, x)
        layer = TPMultiHeadAttention.from_config(
            {**keras_layer.get_config(), "binding": "none"}
        )
        layer.build(x.shape, x.shape)
        layer.set_weights(keras_layer.get_weights())
        self.assert_all_close(layer(x, x), expected)

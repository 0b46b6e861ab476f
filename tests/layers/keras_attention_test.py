"""TP-attention without roles against `keras.layers.MultiHeadAttention`."""

import inspect
from unittest import mock

import keras
import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops
from packaging.version import Version

from tests.layer_test_case import LayerTestCase
from tests.refusals import refused
from tpt_keras.layers import TPMultiHeadAttention

pytestmark = pytest.mark.slow_on_jax


def needs(version):
    """Skips a test of an argument that Keras has from a version on."""
    return pytest.mark.skipif(
        Version(keras.__version__) < Version(version),
        reason=f"needs Keras {version}",
    )


RNG = np.random.default_rng(5)


def shaped(*dims, features=8):
    """A batch of 3."""
    return RNG.normal(size=(3, *dims, features)).astype("float32")


def random_mask(*shape):
    """A random mask that lets every query attend somewhere."""
    mask = RNG.random(shape) < 0.5
    mask[..., 0] = True
    return mask


QUERY, VALUE, KEY = shaped(4), shaped(5, features=6), shaped(5, features=7)
MASKS = {
    "attention_mask": random_mask(3, 4, 5),
    "value_mask": np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1] * 5], "bool"),
    "key_mask": np.array([[1, 1, 0, 1, 1], [1, 0, 1, 1, 1], [1] * 5], "bool"),
    "use_causal_mask": True,
}
# Query's lengths, value's lengths, the attention mask's shape, arguments.
AXES = [
    ("of_heads", (4,), (5,), (3, 2, 4, 5), {}),
    ("of_one_row", (4,), (5,), (1, 2, 4, 5), {}),
    ("of_all_rows", (4,), (5,), (4, 5), {}),
    ("mask2", (3, 4), (3, 2), (4, 2), {"attention_axes": 2}),
    ("mask4", (3, 4), (3, 2), (3, 3, 4, 2), {"attention_axes": (2,)}),
    (
        "two_of_3",
        (5, 3, 4),
        (5, 3, 2),
        (3, 4, 3, 2),
        {"attention_axes": (2, 3)},
    ),
    ("all", (2, 3), (1, 5), None, {"output_shape": (3, 2)}),
    ("turned", (3, 4), (2, 5), None, {"attention_axes": (2, -3)}),
    ("first_and_last", (2, 3, 4), (4, 3, 2), None, {"attention_axes": (1, 3)}),
    ("heads", (3, 4), (3, 2), (3, 3, 2, 4, 2), {"attention_axes": 2}),
]


def keras_attention(**kwargs):
    return keras.layers.MultiHeadAttention(
        2, 3, bias_initializer="random_normal", **kwargs
    )


def like(keras_layer, *inputs, **kwargs):
    """Our layer with the weights of a built Keras layer."""
    layer = TPMultiHeadAttention(2, 3, binding="none", **kwargs)
    layer.build(*(x.shape for x in inputs))
    layer.set_weights(keras_layer.get_weights())
    return layer


class KerasAttentionTest(LayerTestCase):
    def check(self, inputs, init_kwargs, tolerance=1e-5, **kwargs):
        keras_layer = keras_attention(**init_kwargs)
        expected = keras_layer(*inputs, return_attention_scores=True, **kwargs)
        layer = like(keras_layer, *inputs, **init_kwargs)
        outputs = layer(*inputs, return_attention_scores=True, **kwargs)
        for actual, other in zip(outputs, expected, strict=True):
            self.assertEqual(
                keras.backend.standardize_dtype(actual.dtype),
                keras.backend.standardize_dtype(other.dtype),
            )
            self.assert_all_close(
                ops.cast(actual, "float32"),
                ops.cast(other, "float32"),
                tolerance,
                tolerance,
            )
        return layer, keras_layer, expected

    @parameterized.parameters(
        [()], *[[(name,)] for name in MASKS], [tuple(MASKS)]
    )
    def test_masks(self, names):
        masks = {name: MASKS[name] for name in names}
        inputs = QUERY, VALUE, KEY
        layer, keras_layer, _ = self.check(inputs, {}, **masks)
        # Without attention weights, Keras computes in another way.
        self.assert_all_close(
            layer(*inputs, **masks), keras_layer(*inputs, **masks)
        )

    @parameterized.parameters(
        {"value_dim": 5, "output_shape": (2, 5)},
        {"output_shape": 9, "use_bias": False, "dropout": 0.3},
    )
    def test_arguments(self, **init_kwargs):
        layer, _, expected = self.check((QUERY, VALUE), init_kwargs)
        self.assertEqual(
            layer.compute_output_shape(QUERY.shape, VALUE.shape),
            tuple(expected[0].shape),
        )

    @parameterized.parameters(False, True)
    @needs("3.15")
    def test_sliding_window(self, use_causal_mask):
        init_kwargs = {"sliding_window": 2}
        inputs = QUERY, VALUE
        self.check(inputs, init_kwargs, use_causal_mask=use_causal_mask)

    @parameterized.parameters(
        ("float64", 1e-5), ("mixed_float16", 5e-3), ("bfloat16", 5e-2)
    )
    def test_dtype_policies(self, dtype, tolerance):
        if dtype == "float64" and keras.backend.backend() == "jax":
            self.skipTest("JAX has no float64 by default")
        inputs = QUERY, VALUE
        self.check(inputs, {"dtype": dtype}, tolerance, use_causal_mask=True)

    @parameterized.named_parameters(AXES)
    def test_attention_axes(self, targets, sources, mask_shape, init_kwargs):
        inputs = (
            shaped(*targets),
            shaped(*sources, features=6),
            shaped(*sources, features=7),
        )
        mask = None if mask_shape is None else random_mask(*mask_shape)
        layer, *_ = self.check(inputs, init_kwargs, attention_mask=mask)
        # With lengths that are unknown before the call.
        unknown = [None] * len(targets)
        symbolic = [keras.Input((*unknown, x.shape[-1])) for x in inputs]
        outputs = layer(*symbolic, return_attention_scores=True)
        outputs = keras.Model(symbolic, outputs).predict_on_batch(inputs)
        expected = layer(*inputs, return_attention_scores=True)
        for actual, other in zip(outputs, expected, strict=True):
            self.assert_all_close(actual, other)

    @parameterized.parameters(
        ((4,), (5,), {}, False),
        ((4,), (5,), {}, True),
        ((2, 5), (2, 5), {"attention_axes": 2}, False),
    )
    def test_keras_masks(self, targets, sources, init_kwargs, use_causal_mask):
        ids = []
        for dims in (targets, sources):
            ids.append(RNG.integers(1, 6, (3, *dims)))
            ids[-1][0, ..., 1] = ids[-1][1, ..., -1] = 0
        embedding = keras.layers.Embedding(
            6, 8, embeddings_initializer="normal", mask_zero=True
        )

        def run(layer):
            inputs = [keras.Input(x.shape[1:]) for x in ids]
            outputs = layer(
                *map(embedding, inputs), use_causal_mask=use_causal_mask
            )
            outputs = keras.Model(inputs, outputs)(ids)
            return ops.convert_to_numpy(outputs)[ids[0] != 0]

        keras_layer = keras_attention(**init_kwargs)
        expected = run(keras_layer)
        vectors = [ops.convert_to_numpy(embedding(x)) for x in ids]
        layer = like(keras_layer, *vectors, **init_kwargs)
        self.assert_all_close(run(layer), expected)
        unmasked = layer(*vectors, use_causal_mask=use_causal_mask)
        unmasked = ops.convert_to_numpy(unmasked)[ids[0] != 0]
        self.assertGreater(np.max(np.abs(unmasked - expected)), 1e-4)

    @parameterized.parameters({}, {"value_dim": 5, "use_bias": False})
    @needs("3.14")
    def test_gate(self, **init_kwargs):
        layer, _, expected = self.check(
            (QUERY, VALUE, KEY),
            {"use_gate": True, **init_kwargs},
            tolerance=1e-6,
            attention_mask=MASKS["attention_mask"],
        )
        cache = layer.project_keys_and_values(VALUE, KEY)
        output = layer.attend(QUERY, cache, mask=MASKS["attention_mask"])
        self.assert_all_close(output, expected[0], atol=1e-6)

    @parameterized.parameters(
        (False, {"binding": "none"}), (True, {}), (True, {"binding": "none"})
    )
    @needs("3.14")
    def test_config_of_a_keras_layer(self, use_gate, choices):
        keras_layer = keras_attention(
            attention_axes=2, value_dim=5, use_gate=use_gate
        )
        x = shaped(2, 4)
        expected = keras_layer(x, x)
        layer = TPMultiHeadAttention.from_config(
            {**keras_layer.get_config(), **choices}
        )
        layer.build(x.shape, x.shape)
        layer.set_weights(keras_layer.get_weights())
        self.assert_all_close(layer(x, x), expected)

    def test_positional_arguments_are_those_of_keras(self):
        ours, kerases = (
            list(inspect.signature(layer).parameters.values())
            for layer in (TPMultiHeadAttention, keras.layers.MultiHeadAttention)
        )
        ours = [p.name for p in ours if p.kind is p.POSITIONAL_OR_KEYWORD]
        self.assertEqual(ours, [p.name for p in kerases][: len(ours)])

    def test_gate_is_no_second_binding(self):
        with refused("use_gate"):
            TPMultiHeadAttention(2, 3, binding="tensor", use_gate=True)

    @parameterized.parameters(
        {"dropout": 0.1}, {"attention": "relative"}, {"attention": "none"}
    )
    def test_flash_attention_is_refused(self, **arguments):
        with self.assertRaises(ValueError):
            TPMultiHeadAttention(2, 3, flash_attention=True, **arguments)

    def test_flash_attention_is_that_of_keras(self):
        fused = ops.dot_product_attention

        def on_a_cpu(*args, flash_attention, **kwargs):
            self.assertTrue(flash_attention)  # Keras's own needs a GPU
            return fused(*args, **kwargs)

        x = shaped(6)
        mask = np.arange(6) < [[6], [2], [4]]
        call = {"value_mask": mask, "use_causal_mask": True}
        plain = TPMultiHeadAttention(2, 3, flash_attention=False)
        expected = plain(x, x, **call)
        layer = TPMultiHeadAttention.from_config(
            {**plain.get_config(), "flash_attention": True}
        )
        layer.build(x.shape, x.shape)
        layer.set_weights(plain.get_weights())
        with mock.patch.object(ops, "dot_product_attention", on_a_cpu):
            self.assert_all_close(layer(x, x, **call), expected)

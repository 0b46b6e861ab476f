import functools

import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layers.helpers import dropout_masks
from tpt_keras.errors import UsageError
from tpt_keras.layers import DecoderCell
from tpt_keras.layers import EncoderCell
from tpt_keras.layers import FeedForward
from tpt_keras.layers import RelativeAttention
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.layers import TransformerXLCell

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 5, 8)).astype("float32")
SOURCE = RNG.normal(size=(2, 3, 8)).astype("float32")
TARGET = RNG.normal(size=X.shape).astype("float32")
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], "bool")
SOURCE_MASK = np.array([[1, 1, 1], [1, 0, 0]], "bool")
ONES = np.ones((2, 8, 8), "float32")

# Query, key, value and output maps; the role; and the tensor product's wider
# output map (2 heads of 4 * 4 instead of 4).
ATTENTION_WEIGHTS = {
    "none": 4 * (64 + 8),
    "hadamard": 5 * (64 + 8),
    "tensor": 5 * (64 + 8) + 8 * (32 - 8),
}
FEED_FORWARD_WEIGHTS = 2 * 8 * 12 + 12 + 8


def layer_norm(layer, x):
    """The layer norm of a cell, with weights that change something."""
    gamma, beta = RNG.normal(size=(2, 8))
    layer.set_weights([gamma, beta])
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta


class FeedForwardTest(LayerTestCase):
    @parameterized.parameters(
        {},
        {
            "activation": "gelu",
            "kernel_initializer": "he_normal",
            "bias_initializer": "random_normal",
            "seed": 3,
        },
    )
    def test_layer(self, **init_kwargs):
        self.run_layer_test(
            FeedForward,
            {"intermediate_dim": 12, **init_kwargs},
            inputs=[X],
            expected_output_shape=X.shape,
            expected_weight_count=FEED_FORWARD_WEIGHTS,
        )

    def test_equals_equation_5(self):
        layer = FeedForward(12, bias_initializer="random_normal")
        layer.build(X.shape)
        w_f, b_f, w_g, b_g = layer.get_weights()
        expected = np.maximum(X @ w_f + b_f, 0.0) @ w_g + b_g
        self.assert_all_close(layer(X), expected)

    def test_drops_hidden_units_in_training(self):
        # For an identity on positive inputs, only dropout changes anything.
        x = np.abs(X)
        layer = FeedForward(8, dropout=0.5, kernel_initializer="identity")
        self.assert_all_close(layer(x), x)
        self.assert_all_close(layer(x, training=False), x)
        dropped = ops.convert_to_numpy(layer(x, training=True))
        ratio = np.round(dropped / x, 4)
        self.assertSameElements(np.unique(ratio).tolist(), [0.0, 2.0])


class EncoderCellTest(LayerTestCase):
    @parameterized.parameters("none", "hadamard", "tensor")
    def test_layer(self, binding):
        self.run_layer_test(
            EncoderCell,
            {
                "intermediate_dim": 12,
                "num_heads": 2,
                "binding": binding,
                "activation": "gelu",
                "layer_norm_epsilon": 1e-4,
                "kernel_initializer": "he_normal",
                "attention_kernel_initializer": "lecun_uniform",
                "bias_initializer": "random_normal",
                "seed": 3,
            },
            inputs=[X],
            expected_output_shape=X.shape,
            expected_weight_count=ATTENTION_WEIGHTS[binding]
            + FEED_FORWARD_WEIGHTS
            + 3 * 16,
            # A softmax ignores what is added to all of its logits.
            untrained_weights=["key/bias"],
        )

    def test_order_of_sublayers_is_the_released_one(self):
        cell = EncoderCell(12, 2)
        cell.build(X.shape)
        z = layer_norm(cell.self_attention_layer_norm, X)
        x = X + ops.convert_to_numpy(cell.self_attention(z, z))
        z = layer_norm(cell.feed_forward_layer_norm, x)
        x = x + ops.convert_to_numpy(cell.feed_forward(z))
        expected = layer_norm(cell.output_layer_norm, x)
        self.assert_all_close(cell(X), expected)

    def test_returns_the_inputs_of_its_attention(self):
        cell = EncoderCell(12, 2)
        output, inputs = cell(X, MASK, return_attention_inputs=True)
        self.assert_all_equal(output, cell(X, MASK))
        x = X + cell.self_attention(**inputs["self_attention"])
        x = x + cell.feed_forward(cell.feed_forward_layer_norm(x))
        self.assert_all_close(cell.output_layer_norm(x), output)

    @parameterized.parameters("none", "hadamard", "tensor")
    def test_padding_has_no_influence(self, binding):
        cell = EncoderCell(12, 2, binding=binding)
        expected = ops.convert_to_numpy(cell(X, padding_mask=MASK))
        other = np.where(MASK[..., None], X, 7.0).astype("float32")
        actual = ops.convert_to_numpy(cell(other, padding_mask=MASK))
        self.assert_all_close(actual[MASK], expected[MASK])
        self.assert_all_close(cell(X[1:, :2]), expected[1:, :2])

    def test_invalid_arguments_are_named(self):
        for field, kwargs in (
            ("num_heads", {"num_heads": 3}),
            ("binding", {"num_heads": 2, "binding": "tpr"}),
            ("attention", {"num_heads": 2, "attention": "dot"}),
        ):
            with self.assertRaises(UsageError) as caught:
                EncoderCell(12, **kwargs)(X)
            self.assertEqual(caught.exception.field, field)


class DecoderCellTest(LayerTestCase):
    @parameterized.parameters("none", "hadamard", "tensor")
    def test_layer(self, binding):
        self.run_layer_test(
            DecoderCell,
            {"intermediate_dim": 12, "num_heads": 2, "binding": binding},
            inputs=[X, SOURCE],
            expected_output_shape=X.shape,
            expected_weight_count=2 * ATTENTION_WEIGHTS[binding]
            + FEED_FORWARD_WEIGHTS
            + 4 * 16,
            untrained_weights=["key/bias"],
        )

    def test_order_of_sublayers_is_the_released_one(self):
        cell = DecoderCell(12, 2)
        cell.build(X.shape, SOURCE.shape)
        z = layer_norm(cell.self_attention_layer_norm, X)
        x = X + ops.convert_to_numpy(
            cell.self_attention(z, z, use_causal_mask=True)
        )
        z = layer_norm(cell.cross_attention_layer_norm, x)
        x = x + ops.convert_to_numpy(cell.cross_attention(z, SOURCE))
        z = layer_norm(cell.feed_forward_layer_norm, x)
        x = x + ops.convert_to_numpy(cell.feed_forward(z))
        expected = layer_norm(cell.output_layer_norm, x)
        self.assert_all_close(cell(X, SOURCE), expected)

    def test_returns_the_inputs_of_its_attentions(self):
        cell = DecoderCell(12, 2)
        masks = {"encoder_padding_mask": SOURCE_MASK}
        output, inputs = cell(X, SOURCE, **masks, return_attention_inputs=True)
        self.assert_all_equal(output, cell(X, SOURCE, **masks))
        x = X + cell.self_attention(**inputs["self_attention"])
        x = x + cell.cross_attention(**inputs["cross_attention"])
        x = x + cell.feed_forward(cell.feed_forward_layer_norm(x))
        self.assert_all_close(cell.output_layer_norm(x), output)

    def test_symbolic_call_returns_the_cache(self):
        cell = DecoderCell(12, 2)
        source = keras.Input((None, 8))
        past = keras.Input((2, 7, 4))
        output, cache = cell(
            keras.Input((1, 8)),
            source,
            self_attention_cache=(past, past),
            cache_update_index=keras.Input(batch_shape=(), dtype="int32"),
        )
        self.assertEqual(output.shape, (None, 1, 8))
        self.assertEqual([x.shape for x in cache], 2 * [(None, 2, 7, 4)])

    def test_no_position_sees_a_later_one(self):
        cell = DecoderCell(12, 2)
        expected = ops.convert_to_numpy(cell(X, SOURCE))
        for length in range(1, 5):
            changed = X.copy()
            changed[:, length:] = 7.0
            actual = ops.convert_to_numpy(cell(changed, SOURCE))
            self.assert_all_close(actual[:, :length], expected[:, :length])
            self.assertGreater(
                np.max(np.abs(actual[:, length:] - expected[:, length:])), 0.01
            )

    def test_padding_has_no_influence(self):
        cell = DecoderCell(12, 2)
        masks = {
            "decoder_padding_mask": MASK,
            "encoder_padding_mask": SOURCE_MASK,
        }
        expected = ops.convert_to_numpy(cell(X, SOURCE, **masks))
        x = np.where(MASK[..., None], X, 7.0).astype("float32")
        source = np.where(SOURCE_MASK[..., None], SOURCE, -7.0)
        actual = cell(x, source.astype("float32"), **masks)
        actual = ops.convert_to_numpy(actual)
        self.assert_all_close(actual[MASK], expected[MASK])
        self.assert_all_close(cell(X[1:, :2], SOURCE[1:, :1]), expected[1:, :2])

    @parameterized.product(
        binding=["none", "hadamard", "tensor"],
        encoder_padding_mask=[None, SOURCE_MASK],
    )
    def test_cached_equals_uncached(self, binding, encoder_padding_mask):
        cell = DecoderCell(12, 2, binding=binding, bias_initializer="normal")
        mask = {"encoder_padding_mask": encoder_padding_mask}
        expected = ops.convert_to_numpy(cell(X, SOURCE, **mask))
        cross_cache = cell.cross_attention_keys_and_values(SOURCE)
        # Later positions of the cache have no influence.
        self_cache = (ops.full((2, 2, 7, 4), 9.0), ops.full((2, 2, 7, 4), 9.0))
        for index in range(5):
            output, self_cache = cell(
                X[:, index : index + 1],
                **mask,
                self_attention_cache=self_cache,
                cross_attention_cache=cross_cache,
                cache_update_index=index,
            )
            self.assert_all_close(output, expected[:, index : index + 1])
        for past in self_cache:
            self.assert_all_equal(
                past[:, :, 5:], np.full((2, 2, 2, 4), 9.0, "float32")
            )

    def test_cached_step_can_compute_the_cross_attention(self):
        cell = DecoderCell(12, 2)
        expected = cell(X[:, :1], SOURCE)
        output, _ = cell(
            X[:, :1],
            SOURCE,
            self_attention_cache=cell.init_cache(2, 3),
            cache_update_index=0,
        )
        self.assert_all_close(output, expected)

    def test_cross_attention_takes_no_positions(self):
        cell = DecoderCell(12, 2, attention=RelativeAttention(max_distance=2))
        cell.build(X.shape, SOURCE.shape)
        kinds = [
            type(x.attention).__name__
            for x in (cell.self_attention, cell.cross_attention)
        ]
        self.assertEqual(kinds, ["RelativeAttention", "DotProductAttention"])


class TransformerXLCellTest(LayerTestCase):
    @parameterized.parameters("none", "hadamard")
    def test_layer(self, binding):
        maps = 4 + (binding == "hadamard")
        self.run_layer_test(
            TransformerXLCell,
            {
                "intermediate_dim": 12,
                "num_heads": 2,
                "binding": binding,
                "sliding_window": 3,
                "seed": 3,
            },
            inputs=[X],
            expected_output_shape=X.shape,
            expected_weight_count=maps * 64
            + (64 + 2 * 8)  # the mechanism's
            + FEED_FORWARD_WEIGHTS
            + 2 * 16,
        )

    def test_memory_precedes_the_segment(self):
        cell = TransformerXLCell(12, 2)
        whole = np.concatenate([SOURCE, X], axis=1)
        self.assert_all_close(cell(X, memory=SOURCE), cell(whole)[:, 3:])

    def test_masked_memory_has_no_influence(self):
        cell = TransformerXLCell(12, 2)
        mask = np.array([[False, True, True], [False, False, False]])
        output = cell(X, memory=SOURCE, memory_mask=mask)
        self.assert_all_close(output[:1], cell(X[:1], memory=SOURCE[:1, 1:]))
        self.assert_all_close(output[1:], cell(X[1:]))


class DropoutTest(LayerTestCase):
    @parameterized.parameters(
        (EncoderCell, [ONES], 4),
        (DecoderCell, [ONES, ONES], 6),
        (TransformerXLCell, [ONES], 4),
    )
    def test_every_dropout_has_its_own_mask(self, cell_class, inputs, count):
        # All shapes have the same size: heads times lengths is batch times
        # length.
        masks, again, other = (
            dropout_masks(cell_class(8, 1, dropout=0.5, seed=seed), *inputs)
            for seed in (3, 3, 4)
        )
        self.assertLen(masks, count)
        self.assertLen({x.tobytes() for x in [*masks, *other]}, 2 * count)
        for mask, same in zip(masks, again, strict=True):
            self.assert_all_equal(mask, same)

    @parameterized.parameters((EncoderCell, [X]), (DecoderCell, [X, SOURCE]))
    def test_drops_in_training_alone(self, cell_class, inputs):
        cell, without = cell_class(12, 2, dropout=0.5), cell_class(12, 2)
        for each in (cell, without):
            each.build(*(x.shape for x in inputs))
        without.set_weights(cell.get_weights())
        expected = without(*inputs)
        self.assert_all_equal(cell(*inputs), expected)
        self.assert_all_equal(cell(*inputs, training=False), expected)
        dropped = ops.convert_to_numpy(cell(*inputs, training=True))
        self.assertFalse(
            np.array_equal(dropped, ops.convert_to_numpy(expected))
        )


ENCODER = (
    functools.partial(EncoderCell, 12, 2),
    {"inputs": X},
    {"padding_mask": MASK},
)
DECODER = (
    functools.partial(DecoderCell, 12, 2),
    {"decoder_sequence": X, "encoder_sequence": SOURCE},
    {"decoder_padding_mask": MASK, "encoder_padding_mask": SOURCE_MASK},
)
ATTENTION = (
    functools.partial(TPMultiHeadAttention, 2, 4),
    {"query": X, "value": SOURCE},
    {"query_mask": MASK, "value_mask": SOURCE_MASK},
)
FEED_FORWARD = (functools.partial(FeedForward, 12), {"inputs": X}, {})


class MappedLayer(keras.Model):
    """A layer after a map of each of its sequences."""

    def __init__(self, layer, names, num_positional, masks):
        super().__init__(name="mapped_layer")
        self.maps = {name: keras.layers.Dense(8, name=name) for name in names}
        self.layer = layer
        self.num_positional = num_positional
        self.masks = masks

    def call(self, inputs, training=None):
        sequences = {
            name: layer(inputs[name]) for name, layer in self.maps.items()
        }
        names = list(sequences)[: self.num_positional]
        positional = [sequences.pop(name) for name in names]
        return self.layer(
            *positional, **sequences, **self.masks, training=training
        )


class RematerializationTest(LayerTestCase):
    @parameterized.named_parameters(
        ("encoder_by_keyword_eagerly", ENCODER, 0, True),
        ("decoder", DECODER, 2, False),
        ("decoder_by_both_eagerly", DECODER, 1, True),
        ("decoder_by_keyword", DECODER, 0, False),
        ("attention_by_both", ATTENTION, 1, False),
        ("feed_forward_by_keyword_eagerly", FEED_FORWARD, 0, True),
    )
    def test_has_the_same_gradients(self, case, num_positional, run_eagerly):
        make_layer, inputs, masks = case
        with keras.RematScope(mode="list_of_layers", layer_names=["layer"]):
            rematerialized = make_layer(name="layer")
        models = []
        for layer in (rematerialized, make_layer(name="layer")):
            model = MappedLayer(layer, inputs, num_positional, masks)
            model(inputs)
            model.compile(
                "sgd", "mse", jit_compile=False, run_eagerly=run_eagerly
            )
            models.append(model)
        ours, expected = models
        start = ours.get_weights()
        expected.set_weights(start)
        self.assert_all_close(ours(inputs), expected(inputs))
        for model in models:
            model.train_on_batch(inputs, TARGET)
        for weight, other, before in zip(
            ours.weights, expected.weights, start, strict=True
        ):
            self.assert_all_close(weight, other)
            if weight.path.endswith("kernel"):
                moved = np.max(np.abs(ops.convert_to_numpy(other) - before))
                self.assertGreater(moved, 1e-6, weight.path)

import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layers.helpers import dropout_masks
from tpt_keras.errors import UsageError
from tpt_keras.layers import BINDINGS
from tpt_keras.layers import MECHANISMS
from tpt_keras.layers import DecoderCell
from tpt_keras.layers import DotProductAttention
from tpt_keras.layers import EncoderCell
from tpt_keras.layers import FeedForward
from tpt_keras.layers import RelativeAttention
from tpt_keras.layers import TransformerXLCell

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 5, 8)).astype("float32")
SOURCE = RNG.normal(size=(2, 3, 8)).astype("float32")
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]], "bool")
SOURCE_MASK = np.array([[1, 1, 1], [1, 0, 0]], "bool")
ONES = np.ones((2, 8, 8), "float32")

# Query, key, value, role and output maps.
ATTENTION_WEIGHTS = 5 * (64 + 8)
FEED_FORWARD_WEIGHTS = 2 * 8 * 12 + 12 + 8


def layer_norm(layer, x):
    """The layer norm of a cell, with weights that change something."""
    gamma, beta = RNG.normal(size=(2, 8))
    layer.set_weights([gamma, beta])
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta


def mapped(attention, intermediates):
    """The output of an attention that retrieved these fillers and roles."""
    found = intermediates[attention.name]
    return attention.output_dense(found["fillers"] * found["roles"])


class FeedForwardTest(LayerTestCase):
    def test_layer(self):
        self.run_layer_test(
            FeedForward,
            {
                "intermediate_dim": 12,
                "activation": "gelu",
                "kernel_initializer": "he_normal",
                "bias_initializer": "random_normal",
                "seed": 3,
            },
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
        dropped = ops.convert_to_numpy(layer(x, training=True))
        ratio = np.round(dropped / x, 4)
        self.assertSameElements(np.unique(ratio).tolist(), [0.0, 2.0])


class EncoderCellTest(LayerTestCase):
    def test_layer(self):
        self.run_layer_test(
            EncoderCell,
            {
                "intermediate_dim": 12,
                "num_heads": 2,
                "activation": "gelu",
                "layer_norm_epsilon": 1e-4,
                "kernel_initializer": "he_normal",
                "attention_kernel_initializer": "lecun_uniform",
                "bias_initializer": "random_normal",
                "seed": 3,
            },
            inputs=[X],
            expected_output_shape=X.shape,
            expected_weight_count=ATTENTION_WEIGHTS
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

    def test_returns_what_its_attention_retrieved(self):
        cell = EncoderCell(12, 2)
        output, found = cell(X, MASK, return_intermediates=True)
        self.assert_all_close(output, cell(X, MASK))
        x = ops.add(X, mapped(cell.self_attention, found))
        x = x + cell.feed_forward(cell.feed_forward_layer_norm(x))
        self.assert_all_close(cell.output_layer_norm(x), output)

    def test_padding_has_no_influence(self):
        cell = EncoderCell(12, 2)
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
    def test_layer(self):
        self.run_layer_test(
            DecoderCell,
            {"intermediate_dim": 12, "num_heads": 2},
            inputs=[X, SOURCE],
            expected_output_shape=X.shape,
            expected_weight_count=2 * ATTENTION_WEIGHTS
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

    def test_returns_what_its_attentions_retrieved(self):
        cell = DecoderCell(12, 2)
        masks = {"encoder_padding_mask": SOURCE_MASK}
        output, found = cell(X, SOURCE, **masks, return_intermediates=True)
        self.assert_all_close(output, cell(X, SOURCE, **masks))
        x = ops.add(X, mapped(cell.self_attention, found))
        x = x + mapped(cell.cross_attention, found)
        x = x + cell.feed_forward(cell.feed_forward_layer_norm(x))
        self.assert_all_close(cell.output_layer_norm(x), output)

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

    @parameterized.product(attention=list(MECHANISMS), binding=list(BINDINGS))
    def test_cached_equals_uncached(self, attention, binding):
        cell = DecoderCell(
            12, 2, binding, attention=attention, bias_initializer="normal"
        )
        masks = {"encoder_padding_mask": SOURCE_MASK}
        expected = ops.convert_to_numpy(cell(X, SOURCE, **masks))
        cross_cache = cell.cross_attention_keys_and_values(SOURCE, SOURCE_MASK)
        cache = cell.init_cache(2, 3)
        for index in range(5):
            output, cache = cell.decode_step(
                X[:, index : index + 1],
                cell.grow_cache(cache, max(3, index + 2)),
                cross_cache,
                index,
                **masks,
            )
            self.assert_all_close(
                output, expected[:, index : index + 1], 1e-4, 1e-4
            )

    def test_later_positions_of_a_cache_have_no_influence(self):
        cell = DecoderCell(12, 2)
        expected = cell(X[:, :1], SOURCE)
        cache = 2 * (ops.full((2, 2, 7, 4), 9.0),)
        cross_cache = cell.cross_attention_keys_and_values(SOURCE)
        output, cache = cell.decode_step(X[:, :1], cache, cross_cache, 0)
        self.assert_all_close(output, expected)
        for past in cache:
            self.assert_all_equal(
                past[:, :, 1:], np.full((2, 2, 6, 4), 9.0, "float32")
            )

    def test_a_window_does_not_limit_cross_attention(self):
        source = np.concatenate([SOURCE] * 4, axis=1)
        cells = [
            DecoderCell(12, 2, attention=attention, seed=3)
            for attention in (
                DotProductAttention(sliding_window=20),
                DotProductAttention(sliding_window=X.shape[1]),
            )
        ]
        for cell in cells:
            cell.build(X.shape, source.shape)
        cells[1].set_weights(cells[0].get_weights())
        self.assert_all_close(cells[0](X, source), cells[1](X, source))

    def test_cross_attention_takes_no_positions(self):
        cell = DecoderCell(12, 2, attention=RelativeAttention(max_distance=2))
        cell.build(X.shape, SOURCE.shape)
        kinds = [
            type(x.attention).__name__
            for x in (cell.self_attention, cell.cross_attention)
        ]
        self.assertEqual(kinds, ["RelativeAttention", "DotProductAttention"])


class TransformerXLCellTest(LayerTestCase):
    def test_layer(self):
        self.run_layer_test(
            TransformerXLCell,
            {
                "intermediate_dim": 12,
                "num_heads": 2,
                "binding": "hadamard",
                "attention_options": {"sliding_window": 3},
                "seed": 3,
            },
            inputs=[X],
            expected_output_shape=X.shape,
            expected_weight_count=5 * 64
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
        dropped = ops.convert_to_numpy(cell(*inputs, training=True))
        self.assertFalse(
            np.array_equal(dropped, ops.convert_to_numpy(expected))
        )

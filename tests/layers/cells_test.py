import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layers.helpers import dropout_masks
from tests.refusals import refused
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
SOURCE_MASK = np.array([[1, 1, 1], [1, 0, 0]], "bool")
ONES = np.ones((2, 8, 8), "float32")

# Query, key, value, role and output maps.
ATTENTION_WEIGHTS = 5 * (64 + 8)
FEED_FORWARD_WEIGHTS = 2 * 8 * 12 + 12 + 8


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


class EncoderCellTest(LayerTestCase):
    @pytest.mark.slow_on_jax
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

    def test_heads_have_to_divide_the_hidden_size(self):
        with refused("num_heads"):
            EncoderCell(12, num_heads=3)(X)


class DecoderCellTest(LayerTestCase):
    @pytest.mark.slow_on_jax
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

    def test_returns_what_its_attentions_retrieved(self):
        cell = DecoderCell(12, 2)
        masks = {"encoder_padding_mask": SOURCE_MASK}
        output, found = cell(X, SOURCE, **masks, return_intermediates=True)
        self.assert_all_close(output, cell(X, SOURCE, **masks))
        x = ops.add(X, mapped(cell.self_attention, found))
        x = x + mapped(cell.cross_attention, found)
        x = x + cell.feed_forward(cell.feed_forward_layer_norm(x))
        self.assert_all_close(cell.output_layer_norm(x), output)

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

    @parameterized.parameters(
        {"attention": "relational"},
        {"attention": RelativeAttention(max_distance=2)},
        {"attention_options": {"positions": "rotary"}},
    )
    def test_cross_attention_takes_no_positions(self, **choices):
        cell = DecoderCell(12, 2, **choices)
        cell.build(X.shape, SOURCE.shape)
        self.assertTrue(cell.self_attention.attention.needs_positions)
        cross = cell.cross_attention.attention
        self.assertIs(type(cross), DotProductAttention)
        self.assertIsNone(cross.positions)

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


class TransformerXLCellTest(LayerTestCase):
    @pytest.mark.slow_on_jax
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

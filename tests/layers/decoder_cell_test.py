import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layers.dropout_masks import dropout_masks
from tests.layers.encoder_cell_test import ATTENTION_WEIGHTS
from tests.layers.encoder_cell_test import layer_norm
from tpt_keras.layers import DecoderCell

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 5, 8)).astype("float32")
SOURCE = RNG.normal(size=(2, 3, 8)).astype("float32")
SOURCE_MASK = np.array([[1, 1, 1], [1, 0, 0]], "bool")


class DecoderCellTest(LayerTestCase):
    @parameterized.parameters("none", "hadamard", "tensor")
    def test_layer(self, binding):
        self.run_layer_test(
            DecoderCell,
            {"intermediate_dim": 12, "num_heads": 2, "binding": binding},
            inputs=[X, SOURCE],
            expected_output_shape=X.shape,
            expected_weight_count=2 * ATTENTION_WEIGHTS[binding]
            + (2 * 8 * 12 + 12 + 8)
            + 4 * 16,
            untrained_weights=["key/bias"],
        )

    def test_equals_the_released_order_of_sublayers(self):
        cell = DecoderCell(12, 2)
        cell.build(X.shape, SOURCE.shape)
        layer_norms = (
            cell.self_attention_layer_norm,
            cell.cross_attention_layer_norm,
            cell.feed_forward_layer_norm,
            cell.output_layer_norm,
        )
        for layer_norm_layer in layer_norms:
            layer_norm_layer.set_weights(RNG.normal(size=(2, 8)))
        norm_1, norm_2, norm_3, norm_4 = (x.get_weights() for x in layer_norms)
        z = layer_norm(X, *norm_1)
        x = X + ops.convert_to_numpy(
            cell.self_attention(z, z, use_causal_mask=True)
        )
        z = layer_norm(x, *norm_2)
        x = x + ops.convert_to_numpy(cell.cross_attention(z, SOURCE))
        z = layer_norm(x, *norm_3)
        x = x + ops.convert_to_numpy(cell.feed_forward(z))
        self.assert_all_close(cell(X, SOURCE), layer_norm(x, *norm_4))

    def test_tells_what_its_attentions_were_called_with(self):
        cell = DecoderCell(12, 2)
        masks = {"encoder_padding_mask": SOURCE_MASK}
        output, inputs = cell(X, SOURCE, **masks, return_attention_inputs=True)
        self.assert_all_equal(output, cell(X, SOURCE, **masks))
        z = cell.self_attention_layer_norm(X)
        self.assert_all_close(inputs["self_attention"]["query"], z)
        x = X + cell.self_attention(z, z, use_causal_mask=True)
        z = cell.cross_attention_layer_norm(x)
        self.assert_all_close(inputs["cross_attention"]["query"], z)
        x = x + cell.cross_attention(**inputs["cross_attention"])
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
        target_mask = np.array([[1, 1, 1, 1, 0], [0, 1, 1, 0, 0]], "bool")
        masks = {
            "decoder_padding_mask": target_mask,
            "encoder_padding_mask": SOURCE_MASK,
        }
        expected = ops.convert_to_numpy(cell(X, SOURCE, **masks))
        x = np.where(target_mask[..., None], X, 7.0).astype("float32")
        source = np.where(SOURCE_MASK[..., None], SOURCE, -7.0)
        actual = ops.convert_to_numpy(
            cell(x, source.astype("float32"), **masks)
        )
        self.assert_all_close(actual[target_mask], expected[target_mask])
        self.assert_all_close(
            cell(X[1:, 1:3], SOURCE[1:, :1]), expected[1:, 1:3]
        )

    @parameterized.product(
        binding=["none", "hadamard", "tensor"],
        encoder_padding_mask=[None, SOURCE_MASK],
    )
    def test_cached_step_by_step_equals_uncached(
        self, binding, encoder_padding_mask
    ):
        cell = DecoderCell(
            12, 2, binding=binding, bias_initializer="random_normal"
        )
        expected = ops.convert_to_numpy(
            cell(X, SOURCE, encoder_padding_mask=encoder_padding_mask)
        )
        cross_cache = cell.cross_attention_keys_and_values(SOURCE)
        # What lies behind the index must not matter, nor a longer cache.
        self_cache = (ops.full((2, 2, 7, 4), 9.0), ops.full((2, 2, 7, 4), 9.0))
        for index in range(5):
            output, self_cache = cell(
                X[:, index : index + 1],
                encoder_padding_mask=encoder_padding_mask,
                self_attention_cache=self_cache,
                cross_attention_cache=cross_cache,
                cache_update_index=index,
            )
            self.assert_all_close(output, expected[:, index : index + 1])
        keys, values = self_cache
        self.assertEqual(tuple(keys.shape), (2, 2, 7, 4))
        self.assert_all_equal(
            values[:, :, 5:], np.full((2, 2, 2, 4), 9.0, "float32")
        )

    def test_a_cached_step_can_compute_the_cross_attention_itself(self):
        cell = DecoderCell(12, 2)
        expected = ops.convert_to_numpy(cell(X[:, :1], SOURCE))
        empty = ops.zeros((2, 2, 3, 4))
        output, _ = cell(
            X[:, :1],
            SOURCE,
            self_attention_cache=(empty, empty),
            cache_update_index=0,
        )
        self.assert_all_close(output, expected)

    def test_dropout_only_when_training(self):
        cell = DecoderCell(12, 2, dropout=0.5)
        expected = ops.convert_to_numpy(cell(X, SOURCE))
        self.assert_all_equal(cell(X, SOURCE, training=False), expected)
        dropped = ops.convert_to_numpy(cell(X, SOURCE, training=True))
        self.assertFalse(np.array_equal(dropped, expected))

    def test_every_dropout_has_a_mask_of_its_own(self):
        x = np.ones((2, 8, 8), "float32")
        masks = dropout_masks(DecoderCell(8, 1, dropout=0.5, seed=3), x, x)
        self.assertLen(masks, 6)
        self.assertLen({mask.tobytes() for mask in masks}, 6)
        again = dropout_masks(DecoderCell(8, 1, dropout=0.5, seed=3), x, x)
        for mask, same in zip(masks, again, strict=True):
            self.assert_all_equal(mask, same)

import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layers.dropout_masks import dropout_masks
from tpt_keras.layers import EncoderCell

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 4, 8)).astype("float32")

# Queries, keys, values and the output map; the role; and the tensor product's
# wider output map (2 heads of 4 * 4 instead of 4).
ATTENTION_WEIGHTS = {
    "none": 4 * (64 + 8),
    "hadamard": 5 * (64 + 8),
    "tensor": 5 * (64 + 8) + 8 * (32 - 8),
}


def layer_norm(x, gamma, beta, epsilon=1e-5):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


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
            + (2 * 8 * 12 + 12 + 8)
            + 3 * 16,
            # A softmax is the same whatever is added to all of its logits.
            untrained_weights=["key/bias"],
        )

    def test_equals_the_released_order_of_sublayers(self):
        cell = EncoderCell(12, 2)
        cell.build(X.shape)
        for layer_norm_layer in (
            cell.self_attention_layer_norm,
            cell.feed_forward_layer_norm,
            cell.output_layer_norm,
        ):
            layer_norm_layer.set_weights(RNG.normal(size=(2, 8)))
        z = layer_norm(X, *cell.self_attention_layer_norm.get_weights())
        x = X + ops.convert_to_numpy(cell.self_attention(z, z))
        z = layer_norm(x, *cell.feed_forward_layer_norm.get_weights())
        x = x + ops.convert_to_numpy(cell.feed_forward(z))
        expected = layer_norm(x, *cell.output_layer_norm.get_weights())
        self.assert_all_close(cell(X), expected)

    def test_tells_what_its_attention_was_called_with(self):
        cell = EncoderCell(12, 2)
        mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], "bool")
        output, inputs = cell(X, mask, return_attention_inputs=True)
        self.assert_all_equal(output, cell(X, mask))
        x = X + cell.self_attention(**inputs["self_attention"])
        x = x + cell.feed_forward(cell.feed_forward_layer_norm(x))
        self.assert_all_close(cell.output_layer_norm(x), output)

    @parameterized.parameters("none", "hadamard", "tensor")
    def test_padding_has_no_influence(self, binding):
        cell = EncoderCell(12, 2, binding=binding)
        padding_mask = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], "bool")
        expected = ops.convert_to_numpy(cell(X, padding_mask=padding_mask))
        other = np.where(padding_mask[..., None], X, 7.0).astype("float32")
        actual = ops.convert_to_numpy(cell(other, padding_mask=padding_mask))
        self.assert_all_close(actual[padding_mask], expected[padding_mask])
        self.assert_all_close(cell(X[1:, :2]), expected[1:, :2])

    def test_dropout_only_when_training(self):
        cell = EncoderCell(12, 2, dropout=0.5)
        without = EncoderCell(12, 2)
        without.build(X.shape)
        cell.build(X.shape)
        without.set_weights(cell.get_weights())
        self.assert_all_equal(cell(X), without(X))
        self.assert_all_equal(cell(X, training=False), without(X))
        once, again = (
            ops.convert_to_numpy(cell(X, training=True)) for _ in range(2)
        )
        self.assertFalse(np.array_equal(once, again))

    def test_every_sublayer_has_the_dropout(self):
        cell = EncoderCell(12, 2, dropout=0.25)
        cell.build(X.shape)
        for layer in (cell, cell.self_attention.attention, cell.feed_forward):
            self.assertEqual(layer.dropout_layer.rate, 0.25)

    def test_every_dropout_has_a_mask_of_its_own(self):
        # All of one shape: heads times lengths is batch times length.
        x = np.ones((2, 8, 8), "float32")
        masks = dropout_masks(EncoderCell(8, 1, dropout=0.5, seed=3), x)
        self.assertLen(masks, 4)
        self.assertLen({mask.tobytes() for mask in masks}, 4)
        again = dropout_masks(EncoderCell(8, 1, dropout=0.5, seed=3), x)
        other = dropout_masks(EncoderCell(8, 1, dropout=0.5, seed=4), x)
        for mask, same, different in zip(masks, again, other, strict=True):
            self.assert_all_equal(mask, same)
            self.assertFalse(np.array_equal(mask, different))
        # Nor does a cell with the next seed share any.
        self.assertLen({mask.tobytes() for mask in [*masks, *other]}, 8)

    def test_heads_that_do_not_divide_the_hidden_size(self):
        with self.assertRaises(ValueError):
            EncoderCell(12, 3)(X)

    def test_unknown_binding(self):
        with self.assertRaises(ValueError):
            EncoderCell(12, 2, binding="tpr")(X)

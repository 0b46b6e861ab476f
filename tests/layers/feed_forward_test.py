import numpy as np
from absl.testing import parameterized

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import FeedForward

X = np.random.default_rng(5).normal(size=(2, 5, 8)).astype("float32")


class FeedForwardTest(LayerTestCase):
    @parameterized.named_parameters(
        ("defaults", {"intermediate_dim": 12}),
        (
            "no_defaults",
            {
                "intermediate_dim": 12,
                "activation": "gelu",
                "kernel_initializer": "he_normal",
                "bias_initializer": "random_normal",
                "seed": 3,
            },
        ),
    )
    def test_layer(self, init_kwargs):
        self.run_layer_test(
            FeedForward,
            init_kwargs,
            inputs=[X],
            expected_output_shape=(2, 5, 8),
            expected_weight_count=2 * 8 * 12 + 12 + 8,
        )

    def test_equals_equation_5(self):
        layer = FeedForward(12, bias_initializer="random_normal")
        layer.build(X.shape)
        w_f, b_f, w_g, b_g = layer.get_weights()
        expected = np.maximum(X @ w_f + b_f, 0.0) @ w_g + b_g
        self.assert_all_close(layer(X), expected)

    def test_drops_hidden_units_only_when_training(self):
        # Of an identity on positive inputs only dropout changes anything.
        layer = FeedForward(8, dropout=0.5, kernel_initializer="identity")
        x = np.abs(X)
        self.assert_all_close(layer(x), x)
        self.assert_all_close(layer(x, training=False), x)
        dropped = layer(x, training=True)
        ratio = np.round(np.asarray(dropped) / x, 4)
        self.assertSameElements(np.unique(ratio).tolist(), [0.0, 2.0])

    def test_seed_fixes_the_dropout(self):
        outputs = [
            FeedForward(
                8, dropout=0.5, kernel_initializer="identity", seed=seed
            )(X, training=True)
            for seed in (1, 1, 2)
        ]
        self.assert_all_equal(outputs[0], outputs[1])
        self.assertFalse(
            np.array_equal(np.asarray(outputs[0]), np.asarray(outputs[2]))
        )

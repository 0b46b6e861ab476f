import math

import keras
import numpy as np
from absl.testing import parameterized

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import Projection

RNG = np.random.default_rng(5)


class ProjectionTest(LayerTestCase):
    @parameterized.named_parameters(
        ("vectors", {"output_shape": 6}, (8,), (6,), 8 * 6 + 6, True),
        ("into_heads", {"output_shape": (2, 3)}, (8,), (2, 3), 54, True),
        (
            "out_of_heads",
            {
                "output_shape": (7,),
                "num_input_axes": 2,
                "use_bias": False,
                "kernel_initializer": "he_normal",
                "kernel_regularizer": "l2",
                "kernel_constraint": "unit_norm",
            },
            (2, 3),
            (7,),
            2 * 3 * 7,
            False,
        ),
    )
    def test_layer(
        self, init_kwargs, input_axes, output_axes, count, takes_keras_masks
    ):
        self.run_layer_test(
            Projection,
            init_kwargs,
            inputs=[RNG.normal(size=(2, 5, *input_axes)).astype("float32")],
            expected_output_shape=(2, 5, *output_axes),
            expected_weight_count=count,
            takes_keras_masks=takes_keras_masks,
        )

    @parameterized.named_parameters(
        ("vectors", (5,), 1, (4,), "abx,xd->abd", "d"),
        ("into_heads", (5,), 1, (2, 3), "abx,xhd->abhd", "hd"),
        ("out_of_heads", (2, 3), 2, (4,), "abhx,hxd->abd", "d"),
        ("heads_to_heads", (2, 3), 2, (4, 2), "abhx,hxde->abde", "de"),
        ("no_bias", (5,), 1, (2, 3), "abx,xhd->abhd", None),
    )
    def test_equals_einsum_dense(
        self, input_axes, num_input_axes, output_axes, equation, bias_axes
    ):
        inputs = RNG.normal(size=(2, 6, *input_axes)).astype("float32")
        einsum_dense = keras.layers.EinsumDense(
            equation,
            output_shape=(None, *output_axes),
            bias_axes=bias_axes,
            bias_initializer="random_normal",
        )
        expected = einsum_dense(inputs)
        layer = Projection(
            output_axes,
            num_input_axes=num_input_axes,
            use_bias=bias_axes is not None,
        )
        layer.build(inputs.shape)
        layer.set_weights(einsum_dense.get_weights())
        self.assert_all_close(layer(inputs), expected)

    @parameterized.named_parameters(
        ("into_heads", (32,), 1, (4, 16)),
        ("out_of_heads", (4, 16), 2, (32,)),
    )
    def test_initialises_the_matrix_not_a_convolution(
        self, input_axes, num_input_axes, output_axes
    ):
        layer = Projection(output_axes, num_input_axes=num_input_axes)
        layer.build((None, None, *input_axes))
        kernel, bias = layer.get_weights()
        limit = math.sqrt(6.0 / (32 + 64))
        self.assertLessEqual(np.max(np.abs(kernel)), limit)
        # Of 2048 draws the largest is near the limit.
        self.assertGreater(np.max(np.abs(kernel)), 0.98 * limit)
        self.assertAlmostEqual(
            np.std(kernel), limit / math.sqrt(3.0), delta=0.05 * limit
        )
        self.assertFalse(np.any(bias))

    def test_regularizer_and_constraint_are_applied(self):
        layer = Projection(
            3,
            kernel_initializer="ones",
            bias_initializer="ones",
            kernel_regularizer=keras.regularizers.L2(0.5),
            bias_regularizer=keras.regularizers.L1(0.25),
            kernel_constraint=keras.constraints.MaxNorm(1.0),
        )
        layer(np.ones((1, 4), "float32"))
        self.assert_all_close(
            sum(layer.losses), np.float32(0.5 * 12 + 0.25 * 3)
        )
        self.assertIsInstance(
            layer.kernel.constraint, keras.constraints.MaxNorm
        )

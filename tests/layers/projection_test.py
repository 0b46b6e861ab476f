import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layer_test_case import saved_and_loaded
from tests.layers.helpers import needs_tensorflow
from tpt_keras.layers import Projection

RNG = np.random.default_rng(5)
VECTORS = RNG.normal(size=(2, 5, 8)).astype("float32")
HEADS = RNG.normal(size=(2, 5, 2, 3)).astype("float32")
MAPS = [
    ("into_heads", {"output_shape": (2, 3)}, VECTORS),
    ("out_of_heads", {"output_shape": 4, "num_input_axes": 2}, HEADS),
]


def make_model(init_kwargs, inputs):
    symbolic = keras.Input((None, *inputs.shape[2:]))
    layer = Projection(bias_initializer="random_normal", **init_kwargs)
    return keras.Model(symbolic, layer(symbolic)), layer


class ProjectionTest(LayerTestCase):
    @parameterized.named_parameters(
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

    @needs_tensorflow
    def test_length_0_and_an_unknown_batch_size(self):
        import tensorflow as tf

        signature = [tf.TensorSpec((None, 0, 8))]
        function = tf.function(Projection((2, 3)), input_signature=signature)
        self.assertEqual(function(tf.zeros((4, 0, 8))).shape, (4, 0, 2, 3))

    def test_input_of_another_size(self):
        layer = Projection((2, 3))
        layer.build((None, None, 8))
        with self.assertRaises(ValueError):
            layer(np.ones((2, 5, 7), "float32"))
        self.assertEqual(tuple(layer(np.ones((2, 8))).shape), (2, 2, 3))
        self.assertEqual(tuple(layer(np.ones((2, 1, 4, 8))).shape[1:3]), (1, 4))


class QuantizationTest(LayerTestCase):
    @parameterized.product(
        case=MAPS, mode_and_error=[("int8", 1e-4), ("int4", 3e-2)]
    )
    def test_quantize(self, case, mode_and_error):
        _, init_kwargs, inputs = case
        mode, error = mode_and_error
        model, layer = make_model(init_kwargs, inputs)
        expected = ops.convert_to_numpy(model(inputs))
        layer.quantize(mode)
        self.assertEqual(layer.quantization_mode, mode)
        self.assertEqual(
            keras.backend.standardize_dtype(
                layer.non_trainable_weights[0].dtype
            ),
            "int8",
        )
        quantized = ops.convert_to_numpy(model(inputs))
        self.assertBetween(np.mean((quantized - expected) ** 2), 1e-9, error)
        self.assert_all_equal(saved_and_loaded(model)(inputs), quantized)
        # Leading axes make no difference.
        self.assert_all_equal(
            layer(inputs[:, None, :, None])[:, 0, :, 0], quantized
        )

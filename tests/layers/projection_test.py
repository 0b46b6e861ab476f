import math
import pathlib
import tempfile

import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layer_test_case import saved_and_loaded
from tpt_keras.layers import FanInUniform
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


def fit(model, inputs):
    """Two large steps: the first one moves only the second adapter."""
    is_jax = keras.backend.backend() == "jax"
    model.compile(keras.optimizers.Adam(0.1), "mse", jit_compile=is_jax)
    target = RNG.normal(size=model(inputs).shape)
    for _ in range(2):
        model.train_on_batch(inputs, target)


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

    @parameterized.named_parameters(
        ("into_heads", (32,), 1, (4, 16)),
        ("out_of_heads", (4, 16), 2, (32,)),
    )
    def test_initializes_a_matrix(
        self, input_axes, num_input_axes, output_axes
    ):
        fan_in, fan_out = math.prod(input_axes), math.prod(output_axes)
        for kernel_initializer, limit in (
            ("glorot_uniform", math.sqrt(6.0 / (fan_in + fan_out))),
            (FanInUniform(), fan_in**-0.5),
        ):
            layer = Projection(
                output_axes,
                num_input_axes=num_input_axes,
                kernel_initializer=kernel_initializer,
                bias_initializer=FanInUniform(),
            )
            layer.build((None, None, *input_axes))
            self.assert_uniform(layer.kernel, limit, 0.98)
            self.assert_uniform(layer.bias, fan_in**-0.5, 0.8)

    def assert_uniform(self, weight, limit, reach):
        values = ops.convert_to_numpy(weight)
        self.assertLessEqual(np.max(np.abs(values)), limit)
        self.assertGreater(np.max(np.abs(values)), reach * limit)
        self.assertAlmostEqual(
            np.std(values), limit / math.sqrt(3.0), delta=0.15 * limit
        )

    def test_input_of_another_size(self):
        layer = Projection((2, 3))
        layer.build((None, None, 8))
        with self.assertRaises(ValueError):
            layer(np.ones((2, 5, 7), "float32"))
        self.assertEqual(tuple(layer(np.ones((2, 8))).shape), (2, 2, 3))
        self.assertEqual(tuple(layer(np.ones((2, 1, 4, 8))).shape[1:3]), (1, 4))


class LoRATest(LayerTestCase):
    @parameterized.named_parameters(MAPS)
    def test_trains_the_adapters_alone(self, init_kwargs, inputs):
        model, layer = make_model(init_kwargs, inputs)
        expected = ops.convert_to_numpy(model(inputs))
        layer.enable_lora(2)
        self.assertEqual(
            [weight.name for weight in layer.trainable_weights],
            ["bias", "lora_kernel_a", "lora_kernel_b"],
        )
        self.assertLen(layer.non_trainable_weights, 1)
        self.assert_all_close(model(inputs), expected)
        before = {w.path: ops.convert_to_numpy(w) for w in layer.weights}
        fit(model, inputs)
        for weight in layer.weights:
            moved = np.any(before[weight.path] != ops.convert_to_numpy(weight))
            self.assertEqual(moved, weight.name != "kernel", weight.path)

    @parameterized.named_parameters(MAPS)
    def test_is_saved_merged(self, init_kwargs, inputs):
        model, layer = make_model(init_kwargs, inputs)
        layer.enable_lora(2)
        fit(model, inputs)
        expected = model(inputs)
        loaded = saved_and_loaded(model)
        self.assertEqual(loaded.layers[-1].lora_rank, 2)
        self.assert_all_close(loaded(inputs), expected)
        # The weights fit a layer without LoRA, too.
        plain, _ = make_model(init_kwargs, inputs)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "lora.weights.h5"
            model.save_weights(path)
            plain.load_weights(path)
        self.assert_all_close(plain(inputs), expected)


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

    def test_quantized_as_keras_does(self):
        keras_layer = keras.layers.EinsumDense(
            "abx,xhd->abhd", (None, 2, 3), bias_axes="hd"
        )
        keras_layer.build(VECTORS.shape)
        layer = Projection((2, 3))
        layer.build(VECTORS.shape)
        layer.set_weights(keras_layer.get_weights())
        for each in (keras_layer, layer):
            each.quantize("int8")
        self.assert_all_close(layer(VECTORS), keras_layer(VECTORS))

    @parameterized.named_parameters(MAPS)
    def test_adapters_of_a_quantized_map(self, init_kwargs, inputs):
        model, layer = make_model(init_kwargs, inputs)
        layer.quantize("int8")
        expected = ops.convert_to_numpy(model(inputs))
        layer.enable_lora(2)
        self.assert_all_close(model(inputs), expected)
        fit(model, inputs)
        trained = ops.convert_to_numpy(model(inputs))
        self.assertGreater(np.max(np.abs(trained - expected)), 0.05)
        # Merged and quantized once more.
        self.assert_all_close(
            saved_and_loaded(model)(inputs), trained, atol=0.05
        )

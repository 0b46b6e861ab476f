import dataclasses
import inspect
import json
import pathlib
import tempfile
import warnings

import keras
import numpy as np
from absl.testing import parameterized


class LayerTestCase(parameterized.TestCase):
    """The checks that every layer of the package passes."""

    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(17)

    def assert_all_close(self, actual, expected, atol=1e-5, rtol=1e-5):
        """Tensors or arrays of equal shape and nearly equal values."""
        actual = keras.ops.convert_to_numpy(actual)
        expected = keras.ops.convert_to_numpy(expected)
        # `assert_allclose` alone would broadcast.
        self.assertEqual(actual.shape, expected.shape)
        np.testing.assert_allclose(actual, expected, atol=atol, rtol=rtol)

    def assert_all_equal(self, actual, expected):
        """Tensors or arrays of equal shape and equal values."""
        actual = keras.ops.convert_to_numpy(actual)
        expected = keras.ops.convert_to_numpy(expected)
        self.assertEqual(actual.shape, expected.shape)
        np.testing.assert_array_equal(actual, expected)

    def run_layer_test(
        self,
        layer_class,
        init_kwargs,
        inputs,
        expected_output_shape,
        expected_weight_count,
        call_kwargs=None,
        expected_mixed_dtype="bfloat16",
        untrained_weights=(),
        takes_keras_masks=True,
    ):
        """Runs every check that is common to all layers.

        Args:
            layer_class: The layer's class.
            init_kwargs: The arguments to make it with.
            inputs: Tuple of arrays `(batch, length, ...)`, the layer's
                positional call arguments.
            expected_output_shape: Shape of its output on `inputs`.
            expected_weight_count: Number of scalars in its trainable weights;
                it has no others.
            call_kwargs: Further arguments of every call.
            expected_mixed_dtype: The output's dtype under `mixed_bfloat16`.
            untrained_weights: Ends of the paths of the weights that one
                training step leaves where they are.
            takes_keras_masks: Whether the layer takes Keras masks. If so,
                `inputs` are sequences of vectors.
        """
        case = _Case(
            layer_class,
            init_kwargs,
            tuple(np.asarray(x) for x in inputs),
            tuple(expected_output_shape),
            call_kwargs or {},
        )
        for check in (
            self._check_config,
            self._check_saving,
            self._check_quantization,
        ):
            with self.subTest(check.__name__):
                check(case)
        with self.subTest("shapes"):
            self._check_shapes(case, expected_weight_count)
        with self.subTest("mixed precision"):
            self._check_mixed_precision(case, expected_mixed_dtype)
        with self.subTest("training"):
            self._check_training(case, untrained_weights)
        if takes_keras_masks:
            with self.subTest("masks"):
                self._check_masks(case)

    def _check_shapes(self, case, expected_weight_count):
        layer = case.layer()
        output = case.call(layer)
        self.assertEqual(tuple(output.shape), case.output_shape)
        self.assertEqual(_dtype(output), "float32")
        self.assertTrue(np.all(np.isfinite(keras.ops.convert_to_numpy(output))))
        shape = layer.compute_output_shape(*(x.shape for x in case.inputs))
        self.assertEqual(tuple(shape), case.output_shape)
        symbolic_output = case.call(case.layer(), case.symbolic_inputs())
        self.assertEqual(
            tuple(symbolic_output.shape), (None, None, *case.output_shape[2:])
        )
        self.assertEqual(
            sum(int(np.prod(w.shape)) for w in layer.trainable_weights),
            expected_weight_count,
        )
        self.assertEmpty(layer.non_trainable_weights)
        paths = [weight.path for weight in layer.weights]
        self.assertLen(set(paths), len(paths))

    def _check_config(self, case):
        layer = case.layer()
        config = layer.get_config()
        for name in inspect.signature(case.layer_class.__init__).parameters:
            if name not in ("self", "kwargs"):
                self.assertIn(name, config)
        for name, value in case.init_kwargs.items():
            if isinstance(value, (bool, int, float)):
                self.assertIn(config[name], (value, (value,)))
        serialized = keras.saving.serialize_keras_object(layer)
        self.assertEqual(
            serialized["registered_name"],
            f"tpt_keras>{case.layer_class.__name__}",
        )
        revived = keras.saving.deserialize_keras_object(
            json.loads(json.dumps(serialized))
        )
        self.assertIs(type(revived), case.layer_class)
        self.assertEqual(revived.get_config(), config)
        expected = case.call(layer)
        case.call(revived)
        revived.set_weights(layer.get_weights())
        self.assert_all_close(case.call(revived), expected)

    def _check_saving(self, case):
        model = case.functional_model()
        loaded = saved_and_loaded(model)
        inputs = list(case.inputs)
        self.assert_all_equal(loaded(inputs), model(inputs))
        self.assert_all_close(case.call(loaded.layers[-1]), model(inputs))
        # The length was None, so it may be another one.
        longer = [np.concatenate([x, x], axis=1) for x in inputs]
        self.assertEqual(
            tuple(loaded(longer).shape),
            (
                case.output_shape[0],
                2 * case.output_shape[1],
                *case.output_shape[2:],
            ),
        )

    def _check_mixed_precision(self, case, expected_dtype):
        layer = case.layer(dtype="mixed_bfloat16")
        output = case.call(layer)
        self.assertEqual(_dtype(output), expected_dtype)
        for sublayer in _with_sublayers(layer):
            self.assertEqual(sublayer.compute_dtype, "bfloat16", sublayer.name)
        for weight in layer.weights:
            self.assertEqual(_dtype(weight), "float32", weight.path)
        symbolic_output = case.call(
            case.layer(dtype="mixed_bfloat16"), case.symbolic_inputs()
        )
        self.assertEqual(_dtype(symbolic_output), expected_dtype)
        full = case.layer()
        case.call(full)
        full.set_weights(layer.get_weights())
        expected = keras.ops.convert_to_numpy(case.call(full))
        self.assert_all_close(
            keras.ops.cast(output, "float32"),
            expected,
            atol=0.05 * np.max(np.abs(expected)),
            rtol=0.05,
        )

    def _check_training(self, case, untrained_weights):
        model = case.functional_model()
        model.compile(
            keras.optimizers.SGD(1.0),
            loss="mse",
            # TensorFlow traces for longer than it computes.
            run_eagerly=keras.backend.backend() == "tensorflow",
        )
        before = [keras.ops.convert_to_numpy(w) for w in model.weights]
        target = np.random.default_rng(3).normal(size=case.output_shape)
        history = model.fit(
            list(case.inputs), target, batch_size=len(target), verbose=0
        )
        self.assertTrue(np.isfinite(history.history["loss"][0]))
        for weight, old in zip(model.trainable_weights, before):
            if weight.path.endswith(tuple(untrained_weights)):
                continue
            new = keras.ops.convert_to_numpy(weight)
            self.assertGreater(np.max(np.abs(new - old)), 1e-6, weight.path)

    def _check_quantization(self, case):
        """Quantized and saved, it gives nearly, then exactly, the same."""
        model = case.functional_model()
        inputs = list(case.inputs)
        expected = keras.ops.convert_to_numpy(model(inputs))
        with warnings.catch_warnings():
            # Keras warns of layers of its own that have nothing to quantize.
            warnings.filterwarnings(
                "ignore",
                "Layer (InputLayer|Dropout|(Layer|RMS)Norm.*) does not",
            )
            model.quantize("int8")
        for layer in _with_sublayers(model):
            if isinstance(layer, keras.layers.EinsumDense):
                self.assertEqual(layer.quantization_mode, "int8", layer.path)
        quantized = keras.ops.convert_to_numpy(model(inputs))
        self.assert_all_close(
            quantized, expected, atol=0.05 * np.max(np.abs(expected)), rtol=0.05
        )
        loaded = saved_and_loaded(model)
        self.assert_all_equal(loaded(inputs), quantized)
        self.assertEqual(
            loaded.layers[-1].get_config()["dtype"],
            model.layers[-1].get_config()["dtype"],
        )

    def _check_masks(self, case):
        """The first input's mask comes out, and no masked symbol has a say."""
        token_ids, sequences, embeddings = [], [], []
        symbolic_ids = []
        for index, x in enumerate(case.inputs):
            length, hidden_dim = x.shape[1:]
            ids = np.arange(1, 1 + x.shape[0] * length).reshape(-1, length)
            ids[0, -1] = 0
            ids[1:, length - 1 - index % 2 :] = 0
            token_ids.append(ids)
            symbolic_ids.append(keras.Input((None,), dtype="int32"))
            embeddings.append(
                keras.layers.Embedding(
                    ids.size + 1,
                    hidden_dim,
                    embeddings_initializer="random_normal",
                    mask_zero=True,
                )
            )
            sequences.append(embeddings[-1](symbolic_ids[-1]))
        layer = case.layer()
        output = case.call(layer, sequences)
        model = keras.Model(symbolic_ids, [output, MaskProbe()(output)])
        before, mask = model(token_ids)
        expected_mask = token_ids[0] != 0
        self.assert_all_equal(mask, expected_mask)
        for embedding in embeddings:
            matrix = embedding.get_weights()[0]
            matrix[0] += np.linspace(-9.0, 5.0, matrix.shape[1])
            embedding.set_weights([matrix])
        after, _ = model(token_ids)
        before = keras.ops.convert_to_numpy(before)
        after = keras.ops.convert_to_numpy(after)
        self.assert_all_close(after[expected_mask], before[expected_mask])


@dataclasses.dataclass
class _Case:
    """One layer with its inputs."""

    layer_class: type
    init_kwargs: dict
    inputs: tuple
    output_shape: tuple
    call_kwargs: dict

    def layer(self, **kwargs):
        return self.layer_class(**{**self.init_kwargs, **kwargs})

    def call(self, layer, inputs=None):
        inputs = self.inputs if inputs is None else inputs
        return layer(*inputs, **self.call_kwargs)

    def symbolic_inputs(self):
        return [
            keras.Input((None, *x.shape[2:]), dtype=str(x.dtype))
            for x in self.inputs
        ]

    def functional_model(self):
        inputs = self.symbolic_inputs()
        return keras.Model(inputs, self.call(self.layer(), inputs))


class MaskProbe(keras.layers.Layer):
    """Returns the Keras mask that its input carries."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs, mask=None):
        return keras.ops.cast(mask, "bool")

    def compute_output_spec(self, inputs, mask=None):
        return keras.KerasTensor(inputs.shape[:2], dtype="bool")


def saved_and_loaded(model):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        model.save(path)
        return keras.saving.load_model(path)


def _dtype(tensor):
    return keras.backend.standardize_dtype(tensor.dtype)


def _with_sublayers(layer):
    """The layer and all layers in it."""
    # The public `Model.layers` has no counterpart in `Layer`.
    return list(layer._flatten_layers())

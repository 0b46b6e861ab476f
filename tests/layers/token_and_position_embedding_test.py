import math
import re

import keras
import numpy as np
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layer_test_case import MaskProbe
from tests.layers.helpers import needs_tensorflow
from tpt_keras.layers import DigitPlaceEmbedding
from tpt_keras.layers import TokenAndPositionEmbedding
from tpt_keras.layers import position_sinusoids

IDS = np.array([[1, 5, 3, 2], [1, 4, 2, 0]], "int32")
HIDDEN = np.random.default_rng(5).normal(size=(2, 4, 6)).astype("float32")


def reference_sinusoids(positions, hidden_dim):
    """As in the released code: sine in even columns, cosine in odd ones."""
    rows = np.zeros((len(positions), hidden_dim))
    for row, position in zip(rows, positions):
        for column in range(hidden_dim):
            frequency = math.exp(
                -math.log(10000.0) * (column - column % 2) / hidden_dim
            )
            wave = math.cos if column % 2 else math.sin
            row[column] = wave(position * frequency)
    return rows


def backward_program(layer, ids):
    """TensorFlow's graph of the gradient of the embeddings, as text."""
    import tensorflow as tf

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            total = ops.sum(layer(ids))
        return tf.convert_to_tensor(
            tape.gradient(total, layer.embeddings.value)
        )

    return str(gradient.get_concrete_function().graph.as_graph_def())


class TokenAndPositionEmbeddingTest(LayerTestCase):
    @parameterized.named_parameters(
        ("bound", {"mask_zero": True}, {"start_index": 3}, 9 * 6 + 6 * 6 + 6),
        (
            "unbound",
            {
                "bind_embeddings": False,
                "embeddings_initializer": "uniform",
                "seed": 3,
            },
            {},
            9 * 6,
        ),
    )
    def test_layer(self, init_kwargs, call_kwargs, count):
        self.run_layer_test(
            TokenAndPositionEmbedding,
            {"vocabulary_size": 9, "hidden_dim": 6, **init_kwargs},
            inputs=[IDS],
            call_kwargs=call_kwargs,
            expected_output_shape=(2, 4, 6),
            expected_weight_count=count,
            takes_keras_masks=False,
        )

    def test_output_layer(self):
        self.run_layer_test(
            TokenAndPositionEmbedding,
            {"vocabulary_size": 9, "hidden_dim": 6, "bind_embeddings": False},
            inputs=[HIDDEN],
            call_kwargs={"reverse": True},
            expected_output_shape=(2, 4, 9),
            expected_weight_count=9 * 6,
            # bfloat16 is too coarse for a softmax over logits.
            expected_mixed_dtype="float32",
            takes_keras_masks=False,
        )

    @parameterized.parameters(6, 7, 8)
    def test_sinusoids(self, hidden_dim):
        positions = np.array([0, 1, 2, 31, 160])
        self.assert_all_close(
            position_sinusoids(ops.convert_to_tensor(positions), hidden_dim),
            reference_sinusoids(positions, hidden_dim).astype("float32"),
        )

    @parameterized.parameters(False, True)
    def test_equals_the_paper(self, bind_embeddings):
        layer = TokenAndPositionEmbedding(9, 6, bind_embeddings=bind_embeddings)
        layer.build()
        if bind_embeddings:
            layer.role_dense.bias.assign(np.linspace(-1.0, 1.0, 6))
        weights = layer.get_weights()
        x = weights[0][IDS] * math.sqrt(6)
        x += reference_sinusoids(range(4), 6)
        if bind_embeddings:
            _, w_p, b_p = weights
            x = x * (x @ w_p + b_p + 1.0)
        self.assert_all_close(layer(IDS), x.astype("float32"))

    def test_reverse_is_tied_to_the_embeddings(self):
        layer = TokenAndPositionEmbedding(9, 6)
        logits = layer(HIDDEN, reverse=True)
        embeddings = ops.convert_to_numpy(layer.embeddings)
        self.assert_all_close(logits, HIDDEN @ embeddings.T)

    def test_start_index_shifts_the_positions(self):
        layer = TokenAndPositionEmbedding(9, 6)
        whole = ops.convert_to_numpy(layer(IDS))
        self.assert_all_close(layer(IDS[:, 2:], start_index=2), whole[:, 2:])
        self.assert_all_close(
            layer(IDS[:, 3:], start_index=ops.array(3)), whole[:, 3:]
        )
        unshifted = ops.convert_to_numpy(layer(IDS[:, 2:]))
        self.assertGreater(np.max(np.abs(unshifted - whole[:, 2:])), 0.01)

    def test_dropout_only_when_training(self):
        layer = TokenAndPositionEmbedding(9, 6, dropout=0.5)
        expected = ops.convert_to_numpy(layer(IDS))
        dropped = ops.convert_to_numpy(layer(IDS, training=True))
        is_kept = dropped != 0.0
        self.assertBetween(np.mean(is_kept), 0.2, 0.8)
        self.assert_all_close(dropped[is_kept], 2.0 * expected[is_kept])

    def test_mask_zero_masks_as_keras_embedding(self):
        for ids in (IDS, IDS.astype("float32")):
            inputs = keras.Input((None,), dtype=ids.dtype.name)
            masks = []
            for embedding in (
                TokenAndPositionEmbedding(9, 6, mask_zero=True),
                keras.layers.Embedding(9, 6, mask_zero=True),
            ):
                probe = MaskProbe()(embedding(inputs))
                masks.append(keras.Model(inputs, probe)(ids))
            self.assert_all_equal(masks[0], IDS != 0)
            self.assert_all_equal(masks[1], IDS != 0)

    def test_logits_carry_the_mask_of_their_hidden_states(self):
        layer = TokenAndPositionEmbedding(9, 6, mask_zero=True)
        inputs = keras.Input((None,), dtype="int32")
        logits = layer(layer(inputs), reverse=True)
        model = keras.Model(inputs, MaskProbe()(logits))
        self.assert_all_equal(model(IDS), IDS != 0)
        # Zeros among hidden states are no padding.
        zeros = ops.zeros((2, 4, 6))
        self.assertIsNone(layer.compute_mask(zeros))
        self.assertEqual(tuple(layer(zeros, reverse=True).shape), (2, 4, 9))

    @parameterized.product(
        dtype=["float32", "mixed_bfloat16"], vocabulary_size=[9, 5000]
    )
    def test_gradient_of_the_embeddings(self, dtype, vocabulary_size):
        layer = TokenAndPositionEmbedding(
            vocabulary_size, 4, bind_embeddings=False, dtype=dtype
        )
        model = keras.Sequential([layer])
        model.compile(
            keras.optimizers.SGD(1.0), loss=lambda y, x: ops.sum(y * x)
        )
        layer.build()
        layer.embeddings.assign(np.zeros((vocabulary_size, 4)))
        # Token 7 occurs 3,000 times: a sum in bfloat16 would stop at 256.
        ids = np.resize([7, 2, 7, 7], (40, 100)).astype("int32")
        model.train_on_batch(ids, np.ones((40, 100, 4), "float32"))
        expected = np.zeros((vocabulary_size, 4), "float32")
        np.add.at(expected, ids, -2.0)
        self.assert_all_close(layer.embeddings, expected)

    @parameterized.parameters((9, False), (5000, True))
    @needs_tensorflow
    def test_gradient_of_few_embeddings_adds_no_rows_one_by_one(
        self, vocabulary_size, adds_rows
    ):
        layer = TokenAndPositionEmbedding(
            vocabulary_size, 6, bind_embeddings=False
        )
        layer.build()
        program = backward_program(layer, IDS)
        has_product = re.search("MatMul", program)
        self.assertEqual(has_product is None, adds_rows)
        has_sum = re.search("UnsortedSegmentSum|ScatterAdd", program)
        self.assertEqual(has_sum is not None, adds_rows)


def expected_places(text, max_places, units_first):
    """The places of the digits in one text."""
    places = []
    for index, symbol in enumerate(text):
        before = re.search("[0-9]*$", text[:index])[0]
        after = re.match("[0-9]*", text[index:])[0]
        from_first = len(before) + 1
        point = text[: index - len(before)].endswith(".")
        if symbol not in "0123456789":
            places.append(0)
        elif point and from_first <= max_places:
            places.append(max_places + from_first)
        else:
            count = from_first if units_first else len(after)
            places.append(min(count, max_places))
    return places


class DigitPlaceEmbeddingTest(LayerTestCase):
    SYMBOLS = "-.0123456789"

    def make_layer(self, max_places=32):
        layer = DigitPlaceEmbedding(
            range(2, 12), 6, point_id=1, max_places=max_places
        )
        layer.build()
        rows = np.arange(2 * max_places * 6, dtype="float32") + 1.0
        layer.embeddings.assign(rows.reshape(-1, 6))
        return layer

    def random_texts(self):
        rng = np.random.default_rng(0)
        symbols = rng.choice(list("-.1234"), (8, 90), p=[0.1, 0.1, *[0.2] * 4])
        texts = ["".join(row) for row in symbols]
        texts += ["1" * 50 + "." + "2" * 39, "." + "9" * 89]
        ids = [list(map(self.SYMBOLS.index, text)) for text in texts]
        return texts, np.array(ids, "int32")

    def test_layer(self):
        self.run_layer_test(
            DigitPlaceEmbedding,
            {
                "digit_ids": (3, 4, 5),
                "hidden_dim": 6,
                "point_id": 7,
                "max_places": 5,
            },
            inputs=[np.full((2, 4), 3, "int32")],
            expected_output_shape=(2, 4, 6),
            expected_weight_count=2 * 5 * 6,
            takes_keras_masks=False,
        )

    @parameterized.product(max_places=[1, 5, 8, 32], units_first=[False, True])
    def test_places_count_from_the_point(self, max_places, units_first):
        layer = self.make_layer(max_places)
        texts, ids = self.random_texts()
        expected = np.array(
            [expected_places(text, max_places, units_first) for text in texts],
            "int32",
        )
        self.assert_all_equal(layer.places(ids, units_first), expected)
        # Other tokens get zeros, and each place its own row.
        rows = ops.convert_to_numpy(layer.embeddings)
        padded = np.pad(rows, ((1, 0), (0, 0)))
        self.assert_all_close(
            layer(ids, units_first=units_first), padded[expected] * 6**0.5
        )

    @parameterized.parameters(1, 5, 8, 32)
    def test_steps_equal_the_whole(self, max_places):
        layer = self.make_layer(max_places)
        _, ids = self.random_texts()
        next_place = ops.ones((len(ids),), "int32")
        steps = []
        for index in range(ids.shape[1]):
            x, next_place = layer.embed_step(
                ids[:, index : index + 1], next_place
            )
            steps.append(ops.convert_to_numpy(x))
        self.assert_all_close(
            layer(ids, units_first=True), np.concatenate(steps, 1)
        )

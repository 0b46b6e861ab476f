import functools

import keras
import numpy as np
from absl.testing import parameterized

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import DecoderCell
from tpt_keras.layers import EncoderCell
from tpt_keras.layers import FeedForward
from tpt_keras.layers import TPMultiHeadAttention

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 4, 8)).astype("float32")
SOURCE = RNG.normal(size=(2, 3, 8)).astype("float32")
TARGET = RNG.normal(size=(2, 4, 8)).astype("float32")
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], "bool")
SOURCE_MASK = np.array([[1, 1, 1], [1, 0, 0]], "bool")

ENCODER = (
    functools.partial(EncoderCell, 12, 2),
    {"inputs": X},
    {"padding_mask": MASK},
)
DECODER = (
    functools.partial(DecoderCell, 12, 2),
    {"decoder_sequence": X, "encoder_sequence": SOURCE},
    {"decoder_padding_mask": MASK, "encoder_padding_mask": SOURCE_MASK},
)
# What cells are made of, for who rematerializes that.
ATTENTION = (
    functools.partial(TPMultiHeadAttention, 2, 4),
    {"query": X, "value": SOURCE},
    {"query_mask": MASK, "value_mask": SOURCE_MASK},
)
FEED_FORWARD = (functools.partial(FeedForward, 12), {"inputs": X}, {})


class CellBehindMaps(keras.Model):
    """A cell or a part of one, and a map before each of its sequences.

    A map learns what the cell's gradient tells it, or nothing.
    """

    def __init__(self, cell, names, num_positional, masks):
        super().__init__(name="behind_maps")
        self.maps = {name: keras.layers.Dense(8, name=name) for name in names}
        self.cell = cell
        self.num_positional = num_positional
        self.masks = masks

    def call(self, inputs, training=None):
        sequences = {
            name: layer(inputs[name]) for name, layer in self.maps.items()
        }
        names = list(sequences)[: self.num_positional]
        positional = [sequences.pop(name) for name in names]
        return self.cell(
            *positional,
            **sequences,
            **self.masks,
            training=training,
        )


class RematerializedCellTest(LayerTestCase):
    @parameterized.named_parameters(
        ("encoder", ENCODER, 1, False),
        ("encoder_by_keyword_eagerly", ENCODER, 0, True),
        ("decoder", DECODER, 2, False),
        ("decoder_by_both", DECODER, 1, False),
        ("decoder_by_both_eagerly", DECODER, 1, True),
        ("decoder_by_keyword", DECODER, 0, False),
        ("attention", ATTENTION, 2, False),
        ("attention_by_both_eagerly", ATTENTION, 1, True),
        ("feed_forward", FEED_FORWARD, 1, False),
        ("feed_forward_by_keyword_eagerly", FEED_FORWARD, 0, True),
    )
    def test_the_same_output_and_gradients(
        self, case, num_positional, run_eagerly
    ):
        """However tensors are passed. Masks go by keyword."""
        make_cell, inputs, masks = case
        with keras.RematScope(mode="list_of_layers", layer_names=["cell"]):
            cell = make_cell(name="cell")
        cells = (cell, make_cell(name="cell"))
        models = []
        for each in cells:
            model = CellBehindMaps(each, inputs, num_positional, masks)
            model(inputs)
            model.compile(
                "sgd", "mse", jit_compile=False, run_eagerly=run_eagerly
            )
            models.append(model)
        ours, expected = models
        start = ours.get_weights()
        expected.set_weights(start)
        self.assert_all_close(ours(inputs), expected(inputs))
        for model in models:
            model.train_on_batch(inputs, TARGET)
        for weight, theirs, before in zip(
            ours.weights, expected.weights, start, strict=True
        ):
            self.assert_all_close(weight, theirs)
            if weight.path.endswith("kernel"):
                moved = np.max(np.abs(theirs.numpy() - before))
                self.assertGreater(moved, 1e-4, weight.path)

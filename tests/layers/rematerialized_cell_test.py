import keras
import numpy as np
from absl.testing import parameterized

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import DecoderCell
from tpt_keras.layers import EncoderCell

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 4, 8)).astype("float32")
SOURCE = RNG.normal(size=(2, 3, 8)).astype("float32")
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], "bool")
SOURCE_MASK = np.array([[1, 1, 1], [1, 0, 0]], "bool")


class FixedArguments(keras.Model):
    """A cell whose arguments but for its inputs are fixed."""

    def __init__(self, cell, kwargs):
        super().__init__(name="fixed")
        self.cell = cell
        self._kwargs = kwargs
        self.built = True

    def call(self, inputs):
        return self.cell(*inputs, **self._kwargs)


class RematerializedCellTest(LayerTestCase):
    @parameterized.named_parameters(
        ("encoder", EncoderCell, [X], {"padding_mask": MASK}),
        (
            "decoder",
            DecoderCell,
            [X, SOURCE],
            {"decoder_padding_mask": MASK, "encoder_padding_mask": SOURCE_MASK},
        ),
    )
    def test_the_same_output_and_gradient_in_a_graph(
        self, cell_class, inputs, masks
    ):
        """With masks by keyword, which TensorFlow refuses here in a graph."""
        with keras.RematScope(mode="list_of_layers", layer_names=["cell"]):
            cell = cell_class(12, 2, name="cell")
        without = cell_class(12, 2, name="cell")
        for each in (cell, without):
            each.build(*(x.shape for x in inputs))
        without.set_weights(cell.get_weights())
        start = cell.get_weights()
        kwargs = {**masks, "training": True}
        self.assert_all_close(
            cell(*inputs, **kwargs), without(*inputs, **kwargs)
        )
        for each in (cell, without):
            model = FixedArguments(each, kwargs)
            model.compile("sgd", "mse", jit_compile=False)
            model.train_on_batch(inputs, np.zeros_like(X))
        for ours, theirs in zip(
            cell.get_weights(), without.get_weights(), strict=True
        ):
            self.assert_all_close(ours, theirs)
        moved = [
            np.max(np.abs(after - before))
            for after, before in zip(without.get_weights(), start)
        ]
        self.assertGreater(max(moved), 1e-3)

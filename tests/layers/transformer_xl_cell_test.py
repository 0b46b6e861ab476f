import numpy as np
import pytest
from absl.testing import parameterized

from tests.layer_test_case import LayerTestCase
from tpt_keras.layers import TransformerXLCell

RNG = np.random.default_rng(19)
X = RNG.normal(size=(2, 4, 8)).astype("float32")
MEMORY = RNG.normal(size=(2, 3, 8)).astype("float32")


class TransformerXLCellTest(LayerTestCase):
    @parameterized.parameters("none", "hadamard")
    @pytest.mark.slow
    def test_layer(self, binding):
        maps = 4 + (binding == "hadamard")
        self.run_layer_test(
            TransformerXLCell,
            {
                "intermediate_dim": 12,
                "num_heads": 2,
                "binding": binding,
                "sliding_window": 3,
                "seed": 3,
            },
            inputs=[X],
            expected_output_shape=X.shape,
            expected_weight_count=maps * 64
            + (64 + 2 * 8)  # the mechanism's
            + (2 * 8 * 12 + 12 + 8)
            + 2 * 16,
        )

    def test_a_memory_stands_before_the_segment(self):
        cell = TransformerXLCell(12, 2)
        whole = np.concatenate([MEMORY, X], axis=1)
        self.assert_all_close(cell(X, memory=MEMORY), cell(whole)[:, 3:])

    def test_what_is_masked_is_not_remembered(self):
        cell = TransformerXLCell(12, 2)
        mask = np.array([[False, True, True], [False, False, False]])
        output = cell(X, memory=MEMORY, memory_mask=mask)
        self.assert_all_close(
            output[:1], cell(X[:1], memory=MEMORY[:1, 1:]), 1e-5
        )
        self.assert_all_close(output[1:], cell(X[1:]), 1e-5)

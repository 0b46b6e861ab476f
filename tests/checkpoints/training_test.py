"""Ten training steps are the same in Keras and in PyTorch.

The PyTorch side is `TorchTwin` with PyTorch's Adam and clipping. Both sides
start from the golden checkpoints, see the same random batches with padding,
and use the paper's optimizer.

Weights are compared per tensor: the largest difference is 1e-4 of the largest
weight. Because ten steps move a weight by at most 1e-3, the updates are
compared too: the norm of the difference is 1e-4 of the norm of the update. The
biases of keys are left out, because the softmax cancels them: their gradients
are rounding errors.
"""

import functools
import pathlib

import keras
import numpy as np
import pytest
from absl.testing import parameterized

from tpt_keras.checkpoints import from_reference
from tpt_keras.checkpoints import to_reference
from tpt_keras.training.keras_optimizers import PyTorchAdam

torch = pytest.importorskip(
    "torch", reason="the released checkpoints need tpt_keras[torch]"
)

# Of a PyTorch with CUDA, where there is no GPU.
pytestmark = pytest.mark.filterwarnings("ignore:CUDA initialization")

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
PAD, START, END = 1, 2, 3
STEPS = 10
CLIP_NORM = 0.1


def make_batches():
    """Random questions and answers of different lengths, padded."""
    rng = np.random.default_rng(3)

    def rows(lengths, width):
        tokens = rng.integers(4, 73, size=(len(lengths), width))
        positions = np.arange(width)
        ends = np.asarray(lengths)[:, None]
        tokens[:, 0] = START
        tokens = np.where(positions == ends, END, tokens)
        return np.where(positions > ends, PAD, tokens)

    return [
        (
            rows(rng.integers(3, 20, size=16), 20),
            rows(rng.integers(2, 10, size=16), 10),
        )
        for _ in range(STEPS)
    ]


def compile_keras(model, optimizer_class):
    """Compiles the model's trainer."""
    from tpt_keras.training.trainer import Trainer

    trainer = Trainer(model, global_clipnorm=CLIP_NORM)
    trainer.compile(
        optimizer_class(1e-4, beta_1=0.9, beta_2=0.995, epsilon=1e-8),
        jit_compile=False,
    )
    return trainer


def train_keras(model, optimizer_class):
    """Trains in place.

    Returns:
        The losses, and the norms of the gradients before they are clipped,
        where they are known.
    """
    trainer = compile_keras(model, optimizer_class)
    losses, norms = [], []
    for source, target in make_batches():
        inputs = {
            "encoder_token_ids": source,
            "decoder_token_ids": target[:, :-1],
        }
        trainer.reset_metrics()  # or they would average over the steps
        metrics = trainer.train_on_batch(
            inputs, target[:, 1:], return_dict=True
        )
        losses.append(float(metrics["loss"]))
        if "gradient_norm" in metrics:
            norms.append(float(metrics["gradient_norm"]))
    return losses, norms


def train_torch(twin):
    """Trains in place.

    Returns:
        The losses, and the norms of the gradients before they are clipped.
    """
    weights = list(twin.weights.values())
    optimizer = torch.optim.Adam(weights, lr=1e-4, betas=(0.9, 0.995), eps=1e-8)
    losses, norms = [], []
    for source, target in make_batches():
        source, target = torch.as_tensor(source), torch.as_tensor(target)
        logits = twin.logits(source, target[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD
        )
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(weights, CLIP_NORM)))
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, norms


@functools.cache
def trained_torch(name):
    """The weights before, and what training came to in PyTorch."""
    from tests.checkpoints.torch_twin import TorchTwin

    model = from_reference(GOLDEN / f"{name}_small.pt", num_heads=4)
    before = to_reference(model)
    twin = TorchTwin(before, num_heads=4, pad_id=PAD)
    losses, norms = train_torch(twin)
    weights = {
        name: weight.detach().numpy() for name, weight in twin.weights.items()
    }
    return before, losses, norms, weights


@pytest.mark.slow
class TrainingTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        keras.utils.set_random_seed(17)

    def train_both(self, name, optimizer_class=PyTorchAdam):
        """Trains both models and checks the losses.

        Returns:
            The weights before, after ten steps in Keras and in PyTorch.
        """
        before, expected_losses, expected_norms, expected = trained_torch(name)
        model = from_reference(GOLDEN / f"{name}_small.pt", num_heads=4)
        # The clipping clips, and training moves the weights.
        self.assertGreater(min(expected_norms), CLIP_NORM)
        losses, norms = train_keras(model, optimizer_class)
        np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
        if norms:
            np.testing.assert_allclose(norms, expected_norms, rtol=1e-4)
        return before, to_reference(model), expected

    @parameterized.parameters("tp_transformer", "transformer")
    def test_weights_after_ten_steps(self, name):
        before, after, expected = self.train_both(name)
        self.assertEqual(expected.keys() | {"embedding.pe"}, after.keys())
        for weight, value in expected.items():
            with self.subTest(weight):
                np.testing.assert_allclose(
                    after[weight],
                    value,
                    rtol=0.0,
                    atol=1e-4 * np.abs(value).max(),
                )
                if weight.lower().endswith("w_k.bias"):
                    continue
                update = np.linalg.norm(value - before[weight])
                self.assertGreater(update, 0.0)
                difference = np.linalg.norm(after[weight] - value)
                self.assertLess(difference, 1e-4 * update)

    def test_keras_adam_differs(self):
        # If this fails, Keras has moved its epsilon: remove `PyTorchAdam`.
        _, after, expected = self.train_both(
            "transformer", keras.optimizers.Adam
        )
        differences = [
            np.abs(after[weight] - value).max() / np.abs(value).max()
            for weight, value in expected.items()
        ]
        self.assertGreater(max(differences), 1e-4)
        self.assertLess(max(differences), 1e-3)

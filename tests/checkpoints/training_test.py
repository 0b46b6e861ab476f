"""Training steps are the same in Keras and in PyTorch.

The PyTorch side is the benchmarks' twin. Both sides start from a golden
checkpoint, see the same random batches with padding, and use the paper's
optimizer.

Weights are compared per tensor: the largest difference is 1e-4 of the largest
weight. A few steps move a weight by little, so the updates are compared too:
the norm of the difference is 2e-4 of the norm of the update. The biases of
keys are left out, because the softmax cancels them: their gradients are
rounding errors.
"""

import keras
import numpy as np
import pytest

from experiments.benchmarks._pytorch_twin import Twin
from experiments.benchmarks._pytorch_twin import training_step
from tests.checkpoints.conversion_test import golden_model
from tests.checkpoints.conversion_test import torch
from tpt_keras.training.optimizers import PyTorchAdam
from tpt_keras.training.trainer import Trainer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive_on_jax,
    # Of a PyTorch with CUDA, where there is no GPU.
    pytest.mark.filterwarnings("ignore:CUDA initialization"),
]

PAD, START, END = 1, 2, 3
STEPS = 5
CLIP_NORM = 0.1
ADAM = {"learning_rate": 1e-4, "beta_1": 0.9, "beta_2": 0.995, "epsilon": 1e-8}


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


def train_keras(model):
    """Trains in place.

    Returns:
        The losses, and the norms of the gradients before they are clipped.
    """
    trainer = Trainer(model, global_clipnorm=CLIP_NORM)
    trainer.compile(PyTorchAdam(**ADAM), jit_compile=False)
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
        norms.append(float(metrics["gradient_norm"]))
    return losses, norms


def train_torch(twin):
    """Trains in place; returns what `train_keras` returns."""
    step = training_step(twin)
    results = [
        step(*map(torch.as_tensor, (source, target[:, :-1], target[:, 1:])))
        for source, target in make_batches()
    ]
    return tuple(zip(*results))


def weights_of(model):
    """The weights of a Keras model, under the twin's names."""
    parameters = Twin(model).named_parameters()
    return {name: weight.detach().numpy() for name, weight in parameters}


def test_steps_are_those_of_pytorch():
    keras.utils.set_random_seed(17)
    model = golden_model("tp_transformer")
    before = weights_of(model)
    twin = Twin(model)
    expected_losses, expected_norms = train_torch(twin)
    losses, norms = train_keras(model)
    # The clipping clips.
    assert min(expected_norms) > CLIP_NORM
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    np.testing.assert_allclose(norms, expected_norms, rtol=1e-4)
    after = weights_of(model)
    for name, weight in twin.named_parameters():
        value = weight.detach().numpy()
        np.testing.assert_allclose(
            after[name],
            value,
            rtol=0.0,
            atol=1e-4 * np.abs(value).max(),
            err_msg=name,
        )
        if name.endswith("key.bias"):
            continue
        update = np.linalg.norm(value - before[name])
        assert update > 0.0
        assert np.linalg.norm(after[name] - value) < 2e-4 * update, name

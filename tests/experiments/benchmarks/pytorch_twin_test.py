"""The PyTorch twin computes what the Keras model computes."""

import keras
import numpy as np
import pytest

from tests.checkpoints.conversion_test import torch
from tpt_keras.models import Transformer
from tpt_keras.models.weights import copy_model
from tpt_keras.training.trainer import Trainer

pytestmark = [
    pytest.mark.slow,
    # Of a PyTorch with CUDA, where there is no GPU.
    pytest.mark.filterwarnings("ignore:CUDA initialization"),
]

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
MAX_LENGTH = 6


@pytest.fixture(scope="module")
def model(tiny_config):
    """A model with random weights; one of its answers ends early."""
    model = Transformer(tiny_config.replace(num_layers=2))
    rng = np.random.default_rng(52)
    for weight in model.weights:
        mean = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(rng.normal(mean, 0.3, weight.shape))
    return model


@pytest.fixture(scope="module")
def batch(model):
    """Questions, answers without their last tokens, and targets."""
    encode = model.tokenizer.encode_batch
    questions = encode(["What is 1 + 1?", "Solve 2*x = 4 for x.", "7"])
    target = encode(["2", "-12", "0.125"])
    return questions, target[:, :-1], target[:, 1:]


def twin_of(model):
    from experiments.benchmarks._pytorch_twin import Twin

    return Twin(model)


def outputs(twin, *token_ids):
    """The logits and the encoder's output."""
    source_ids, ids = map(torch.as_tensor, token_ids)
    with torch.no_grad():
        return twin(source_ids, ids).numpy(), twin.encode(source_ids)[0].numpy()


def test_outputs_are_the_same(model, batch):
    questions, ids, _ = batch
    inputs = {"encoder_token_ids": questions, "decoder_token_ids": ids}
    logits, encoded = outputs(twin_of(model), questions, ids)
    # The decoder's padding attends to real tokens alone in ours.
    for found, expected, is_token in (
        (logits, model(inputs), ids != 0),
        (encoded, model.encode(questions), questions != 0),
    ):
        expected = keras.ops.convert_to_numpy(expected)
        np.testing.assert_allclose(
            found[is_token], expected[is_token], **TOLERANCE
        )


def test_answers_are_the_same(model, batch):
    questions = batch[0]
    expected = keras.ops.convert_to_numpy(model.generate(questions, MAX_LENGTH))
    assert (expected == model.tokenizer.end_id).any(axis=1).sum() == 1
    found = twin_of(model).generate(torch.as_tensor(questions), MAX_LENGTH)
    assert found.tolist() == expected.tolist()


def test_the_loss_and_the_gradient_are_the_same(model, batch):
    from experiments.benchmarks._pytorch_twin import autocast

    questions, ids, targets = batch
    trainer = Trainer(copy_model(model, "float32"))
    trainer.compile("sgd", run_eagerly=True)
    expected = trainer.train_on_batch(
        {"encoder_token_ids": questions, "decoder_token_ids": ids},
        targets,
        return_dict=True,
    )
    twin = twin_of(model)
    losses = {}
    for precision in ("float32", "bfloat16"):
        with autocast(precision):
            losses[precision] = twin.loss(*map(torch.as_tensor, batch))
    np.testing.assert_allclose(
        losses["float32"].item(), expected["loss"], **TOLERANCE
    )
    assert losses["bfloat16"] != losses["float32"]
    torch.testing.assert_close(*losses.values(), rtol=0.05, atol=0.0)
    losses["float32"].backward()
    gradients = [parameter.grad for parameter in twin.parameters()]
    np.testing.assert_allclose(
        torch.nn.utils.get_total_norm(gradients),
        expected["gradient_norm"],
        **TOLERANCE,
    )

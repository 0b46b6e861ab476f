"""The PyTorch twin computes what the Keras model computes."""

import keras
import numpy as np
import pytest

from tests.checkpoints.conversion_test import torch
from tpt_keras.models import Transformer

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
    """Questions, and answers without their last tokens."""
    encode = model.tokenizer.encode_batch
    questions = encode(["What is 1 + 1?", "Solve 2*x = 4 for x.", "7"])
    return questions, encode(["2", "-12", "0.125"])[:, :-1]


def twin_of(model):
    from experiments.benchmarks._pytorch_twin import Twin

    return Twin(model)


def outputs(twin, *token_ids):
    """The logits and the encoder's output."""
    source_ids, ids = map(torch.as_tensor, token_ids)
    with torch.no_grad():
        return twin(source_ids, ids).numpy(), twin.encode(source_ids)[0].numpy()


def test_outputs_are_the_same(model, batch):
    questions, ids = batch
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

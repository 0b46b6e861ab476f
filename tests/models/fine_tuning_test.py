"""Adapters, quantized weights and saved models of a whole Transformer."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.layer_test_case import saved_and_loaded
from tests.refusals import refused
from tpt_keras.layers import EncoderCell
from tpt_keras.models import Transformer
from tpt_keras.models import enable_lora

QUESTIONS = ["What is 1 + 1?", "Solve 2*x = 4 for x."]
# The embedding's, five of each attention, two of each feed-forward.
NUM_MAPS = 1 + 3 * 5 + 2 * 2
TRAINED = ("bias", "lora_kernel_a", "lora_kernel_b")
pytestmark = pytest.mark.slow


def make_model(config):
    keras.utils.set_random_seed(5)
    return Transformer(config.replace(max_answer_length=4))


@pytest.fixture
def model(tiny_config):
    return make_model(tiny_config)


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(5)
    return {
        "encoder_token_ids": rng.integers(3, 72, (4, 9)).astype("int32"),
        "decoder_token_ids": rng.integers(3, 72, (4, 5)).astype("int32"),
    }


def maps(model):
    """All maps of a model."""
    layers = model._flatten_layers()
    return [layer for layer in layers if hasattr(layer, "enable_lora")]


def logits(model, inputs):
    return ops.convert_to_numpy(model(inputs))


def train(model, inputs):
    model.compile(
        keras.optimizers.Adam(0.05),
        "mse",
        # Compiling takes longer than two steps do.
        run_eagerly=keras.backend.backend() == "tensorflow",
    )
    target = np.zeros((4, 5, 72), "float32")
    for _ in range(2):
        model.train_on_batch(inputs, target)


@pytest.fixture(scope="module")
def quantized_model(tiny_config):
    model = make_model(tiny_config)
    model.quantize("int8")
    return model


def test_quantization_reaches_every_map(model, quantized_model, inputs):
    expected = logits(model, inputs)
    model = quantized_model
    modes = [layer.quantization_mode for layer in maps(model)]
    assert modes == ["int8"] * NUM_MAPS
    quantized = logits(model, inputs)
    error = np.mean((quantized - expected) ** 2)
    assert 0.0 < error < 1e-3 * np.mean(expected**2)
    loaded = saved_and_loaded(model)
    np.testing.assert_array_equal(logits(loaded, inputs), quantized)
    # And a second time, from what was loaded.
    loaded = saved_and_loaded(loaded)
    np.testing.assert_array_equal(logits(loaded, inputs), quantized)
    assert loaded.get_config() == model.get_config()


def test_adapters_reach_every_map(model, inputs):
    expected = logits(model, inputs)
    enable_lora(model, rank=2)
    np.testing.assert_allclose(logits(model, inputs), expected, atol=1e-5)
    before = [(w, ops.convert_to_numpy(w)) for w in model.weights]
    train(model, inputs)
    for weight, value in before:
        has_moved = np.any(ops.convert_to_numpy(weight) != value)
        # No gradient reaches what is added to all logits of a softmax.
        if not weight.path.endswith("key/bias"):
            assert has_moved == (weight.name in TRAINED), weight.path
    trained = logits(model, inputs)
    assert np.max(np.abs(trained - expected)) > 0.1
    loaded = saved_and_loaded(model)
    assert not any(layer.lora_enabled for layer in maps(loaded))
    np.testing.assert_allclose(logits(loaded, inputs), trained, atol=1e-5)


def test_adapters_of_a_quantized_model(quantized_model, inputs):
    model = saved_and_loaded(quantized_model)
    quantized = logits(model, inputs)
    enable_lora(model, rank=2)
    np.testing.assert_allclose(logits(model, inputs), quantized, atol=1e-5)
    train(model, inputs)
    trained = logits(model, inputs)
    assert np.max(np.abs(trained - quantized)) > 0.1
    loaded = saved_and_loaded(model)
    error = np.mean((logits(loaded, inputs) - trained) ** 2)
    assert error < 1e-2 * np.mean(trained**2)


class WithHead(Transformer):
    """A model with a head of its own."""

    def build(self, input_shape=None):
        super().build()
        self.head = keras.layers.Dense(3)
        self.head.build((None, None, 72))


def test_adapters_leave_a_new_head_trainable(tiny_config):
    x = keras.Input((7, 32))
    hidden = EncoderCell(16, 2)(keras.layers.LayerNormalization()(x))
    for model, names in (
        (WithHead(tiny_config), ()),
        (keras.Model(x, keras.layers.Dense(3)(hidden)), ("gamma", "beta")),
    ):
        enable_lora(model, rank=2)
        trained = sorted({weight.name for weight in model.trainable_weights})
        assert trained == sorted((*TRAINED, *names, "kernel"))
        kernels = [w for w in model.trainable_weights if w.name == "kernel"]
        assert [kernel.shape[-1] for kernel in kernels] == [3]


def test_adapters_without_a_rank_are_refused(model):
    with refused("rank"):
        enable_lora(model, rank=0)


def test_answers_follow_the_layers(model):
    embeddings = ops.convert_to_numpy(model.embedding.embeddings)
    seven = 50.0 * embeddings[model.tokenizer.token_ids["7"]]

    def answers_sevens():
        return [answer[:3] for answer in model.solve(QUESTIONS)] == ["777"] * 2

    assert not answers_sevens()
    # Other weights need no other program, other variables do.
    bias = model.decoder_cells[0].output_layer_norm.beta
    bias.assign(seven)
    assert answers_sevens()
    bias.assign(0.0 * seven)
    assert not answers_sevens()
    # Adapters that map whatever the feed-forward holds to sevens.
    layer = model.decoder_cells[0].feed_forward.output_dense
    layer.enable_lora(1, a_initializer="ones")
    layer.lora_kernel_b.assign(seven[None])
    assert answers_sevens()

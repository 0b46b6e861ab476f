"""The LSTM baselines: `SimpleLSTM` and `AttentionalLSTM`."""

import keras
import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.models.transformer_test import VOCABULARY
from tests.models.transformer_test import logits
from tests.models.transformer_test import uncached_greedy
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.models import PRESETS
from tpt_keras.models import build_model
from tpt_keras.models.weights import copy_model

pytestmark = pytest.mark.slow_on_jax

TINY = {
    "hidden_dim": 8,
    "encoder_dim": 4,
    "attention_dim": 5,
    "vocabulary": VOCABULARY,
    "max_question_length": 9,
    "max_answer_length": 5,
}
CONFIGS = (
    PRESETS["lstm"].replace(**TINY, thinking_steps=3),
    PRESETS["lstm_attention"].replace(**TINY),
    # Symbols of neither row.
    PRESETS["lstm"].replace(**TINY, thinking_steps=0),
    PRESETS["lstm_attention"].replace(**TINY, thinking_steps=2),
)
BOTH = parameterized.parameters(CONFIGS[0], CONFIGS[1])
QUESTIONS = ["1+2", "0", "33+21+0+1", "3+3+3"]


def make_model(config, seed=5, dtype=None, **overrides):
    """A model whose weights are the same on every backend."""
    model = build_model(config.replace(**overrides), dtype)
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        # So large that answers differ.
        weight.assign(2.0 * rng.normal(size=weight.shape))
    return model


def numbers(weights):
    """float64 arrays."""
    return [ops.convert_to_numpy(w).astype("float64") for w in weights]


def one_hot(token_ids):
    return np.eye(len(VOCABULARY))[token_ids]


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def lstm_step(x, states, weights):
    """Hochreiter and Schmidhuber's LSTM, with Keras's order of the gates."""
    kernel, recurrent_kernel, bias = weights
    h, c = states
    i, f, g, o = np.split(x @ kernel + h @ recurrent_kernel + bias, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def run_lstm(inputs, states, weights):
    hidden = []
    for x in inputs:
        states = lstm_step(x, states, weights)
        hidden.append(states[0])
    return np.array(hidden), states


def simple_lstm(model, question, answer):
    """The logits of one row without padding, as the docstring has them."""
    kernel, bias = numbers(model.logits_dense.weights)
    inputs = np.concatenate(
        [
            one_hot(question),
            np.zeros((model.config.thinking_steps, len(VOCABULARY))),
            one_hot(answer),
        ]
    )
    zeros = np.zeros(model.config.hidden_dim)
    hidden, _ = run_lstm(inputs, (zeros, zeros), numbers(model.lstm.weights))
    return hidden[-len(answer) :] @ kernel + bias


def attentional_lstm(model, question, answer):
    """The logits of one row without padding, as the docstring has them."""
    x = one_hot(question)
    zeros = np.zeros(model.config.encoder_dim)
    forward, _ = run_lstm(
        x, (zeros, zeros), numbers(model.forward_encoder.weights)
    )
    backward, _ = run_lstm(
        x[::-1], (zeros, zeros), numbers(model.backward_encoder.weights)
    )
    kernel, bias = numbers(model.memory_dense.weights)
    memory = np.concatenate([forward, backward[::-1]], axis=-1) @ kernel + bias
    [query] = numbers(model.query_dense.weights)
    [vector] = numbers(model.attention.weights)
    weights = numbers(model.decoder_cell.weights)
    kernel, bias = numbers(model.logits_dense.weights)
    states = 2 * [np.zeros(model.config.hidden_dim)]
    blanks = np.zeros((model.config.thinking_steps, len(VOCABULARY)))
    rows = []
    for y in np.concatenate([blanks, one_hot(answer)]):
        scores = np.exp(np.tanh(states[0] @ query + memory) @ vector)
        read = scores / scores.sum() @ memory
        states = lstm_step(np.concatenate([y, read]), states, weights)
        rows.append(np.concatenate([states[0], read]) @ kernel + bias)
    return np.array(rows)[-len(answer) :]


class LSTMTest(LayerTestCase):
    @parameterized.parameters(*CONFIGS)
    def test_computes_what_its_docstring_says(self, config):
        model = make_model(config)
        reference = {"none": simple_lstm, "additive": attentional_lstm}
        question, answer = [1, 5, 3, 6, 2], [1, 4, 5]
        inputs = {
            "encoder_token_ids": np.array([question]),
            "decoder_token_ids": np.array([answer]),
        }
        self.assert_all_close(
            logits(model, inputs)[0],
            reference[config.attention](model, question, answer),
            atol=1e-4,
        )

    @BOTH
    def test_padding_changes_nothing(self, config):
        model = make_model(config)
        ids = np.array([[1, 5, 3, 6, 2, 0], [1, 7, 2, 0, 0, 0]])
        answers = np.array([[1, 7, 2, 0], [1, 4, 5, 6]])
        inputs = {"encoder_token_ids": ids, "decoder_token_ids": answers}
        together = logits(model, inputs)
        self.assertEqual(together.dtype, "float32")
        wider = np.pad(ids, ((0, 0), (0, 4)))
        self.assert_all_close(
            logits(model, {**inputs, "encoder_token_ids": wider}), together
        )
        alone = {
            "encoder_token_ids": ids[1:, :3],
            "decoder_token_ids": answers[1:],
        }
        self.assert_all_close(logits(model, alone), together[1:])

    @BOTH
    def test_cached_equals_uncached(self, config):
        model = make_model(config)
        ids = model.tokenizer.encode_questions(QUESTIONS)
        found = ops.convert_to_numpy(model.generate(ids))
        self.assert_all_equal(found, uncached_greedy(model, ids, 5))
        self.assertGreater(len({tuple(row) for row in found}), 1)

    @BOTH
    def test_learns_with_dropout(self, config):
        model = make_model(config, dropout=0.2)
        ids = model.tokenizer.encode_questions(QUESTIONS)
        inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
        before = numbers(model.trainable_weights)
        model.compile(
            "adam",
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
            run_eagerly=True,  # compiling takes longer than one step
        )
        trained = ops.convert_to_numpy(model(inputs, training=True))
        self.assertTrue(np.any(trained != logits(model, inputs)))
        model.fit(inputs, ids, batch_size=4, verbose=0)
        for weight, old in zip(model.trainable_weights, before):
            self.assertTrue(
                np.any(ops.convert_to_numpy(weight) != old), weight.path
            )

    @parameterized.parameters(
        (CONFIGS[0], "mixed_bfloat16"), (CONFIGS[1], "bfloat16")
    )
    def test_in_few_bits(self, config, dtype):
        model = make_model(config)
        # Large weights, which the others are, amplify rounding.
        for weight in model.weights:
            weight.assign(weight * 0.05)
        ids = model.tokenizer.encode_questions(QUESTIONS)
        inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
        other = copy_model(model, dtype)
        self.assertEqual(other.compute_dtype, "bfloat16")
        found = other(inputs)
        self.assertEqual(
            keras.backend.standardize_dtype(found.dtype), "float32"
        )
        self.assert_all_close(found, model(inputs), atol=0.02, rtol=0.0)
        cache = other.init_cache(ids, 3)
        step, _ = other.decode_step(ids[:, 0], cache, 0)
        self.assert_all_close(step, found[:, 0], atol=0.02, rtol=0.0)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="needs SavedModel"
)
@pytest.mark.slow
def test_is_exported(tmp_path):
    from tpt_keras.serving import SavedModel
    from tpt_keras.serving.export import export

    model = make_model(CONFIGS[1])
    # Refuses what a stock server could not run.
    saved = SavedModel(export(model, tmp_path, sampler=BeamSampler(2)))
    best = Generator(model, BeamSampler(2)).answer(QUESTIONS)
    expected = [answer.text for answer in best]
    assert [answer.text for answer in saved.answer(QUESTIONS)] == expected
    # Batches and lengths are free.
    assert saved.answer(QUESTIONS[:1])[0].text == expected[0]
    assert saved.config["kind"] == "lstm"

import math
import tempfile
from unittest import mock

import keras
import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tpt_keras.decoding import BeamSampler
from tpt_keras.decoding import Generator
from tpt_keras.language_model import TransformerXL
from tpt_keras.layers import DecoderCell
from tpt_keras.layers import EncoderCell
from tpt_keras.layers import Projection
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig

pytestmark = pytest.mark.slow_on_jax

VOCABULARY = ("<pad>", "<start>", "<end>", *"+0123")
CONFIG = TransformerConfig(
    hidden_dim=16,
    intermediate_dim=24,
    num_heads=2,
    num_layers=1,
    vocabulary=VOCABULARY,
    max_question_length=12,
    max_answer_length=6,
)
QUESTIONS = ["1+2", "0", "33+21+0+1", "3+3+3", "2+0", "+", "1", "2+2"]
# Two questions, answered up to a padded target.
INPUTS = {
    "encoder_token_ids": np.array([[1, 5, 3, 6, 2, 0], [1, 7, 2, 0, 0, 0]]),
    "decoder_token_ids": np.array([[1, 7, 2, 0], [1, 4, 5, 6]]),
}
INPUTS = {name: ids.astype("int32") for name, ids in INPUTS.items()}


def make_model(seed=0, dtype=None, **overrides):
    """A tiny model with weights that are the same on every backend."""
    model = Transformer(CONFIG.replace(**overrides), dtype=dtype)
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        fan_in = weight.shape[0] if len(weight.shape) > 1 else 16
        values = rng.normal(size=weight.shape) * 1.5 / math.sqrt(fan_in)
        if weight.path.endswith("gamma"):
            values += 1.0
        weight.assign(values)
    return model


def logits(model, inputs):
    return ops.convert_to_numpy(model(inputs))


def uncached_greedy(model, encoder_token_ids, max_length):
    """Greedy decoding that computes everything anew at every step."""
    tokenizer = model.tokenizer
    batch_size = len(encoder_token_ids)
    ids = np.full((batch_size, 1), tokenizer.start_id, "int32")
    is_ended = np.zeros(batch_size, "bool")
    for _ in range(max_length):
        # At one length, since some backends compile for every length.
        padded = np.pad(ids, ((0, 0), (0, max_length - ids.shape[1])))
        all_logits = logits(
            model,
            {
                "encoder_token_ids": encoder_token_ids,
                "decoder_token_ids": padded,
            },
        )
        next_logits = all_logits[:, ids.shape[1] - 1]
        # Other tokens are no part of an answer.
        is_token = tokenizer.answer_mask(next_logits.shape[-1])
        next_logits = np.where(is_token, next_logits, -np.inf)
        next_ids = np.argmax(next_logits, axis=-1)
        next_ids = np.where(is_ended, tokenizer.pad_id, next_ids)
        is_ended |= next_ids == tokenizer.end_id
        ids = np.concatenate([ids, next_ids[:, None]], axis=1).astype("int32")
    return ids[:, 1:]


def uncached_beams(model, encoder_token_ids, max_length, sampler):
    """Beam search that computes everything anew at every step."""

    def step(token_ids, cache, index):
        is_here = ops.equal(ops.arange(max_length), index)
        changed = {
            "decoder_token_ids": ops.where(
                is_here,
                ops.expand_dims(token_ids, -1),
                cache["decoder_token_ids"],
            ),
        }
        return ops.take(model({**cache, **changed}), index, axis=1), changed

    tokenizer = model.tokenizer
    questions = np.repeat(encoder_token_ids, sampler.num_sequences, axis=0)
    return sampler.decode(
        step,
        {
            "encoder_token_ids": ops.convert_to_tensor(questions),
            "decoder_token_ids": ops.zeros(
                (len(questions), max_length), dtype="int32"
            ),
        },
        batch_size=len(encoder_token_ids),
        max_length=max_length,
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
        pad_id=tokenizer.pad_id,
        token_mask=tokenizer.answer_mask(model.config.vocabulary_size),
    )


def set_logit(model, token_id, value):
    """Gives a token one logit wherever it might be answered."""
    output_layer_norm = model.decoder_cells[-1].output_layer_norm
    gamma, beta = output_layer_norm.get_weights()
    gamma[-1], beta[-1] = 0.0, 1.0
    output_layer_norm.set_weights([gamma, beta])
    embeddings = model.embedding.get_weights()[0]
    embeddings[token_id] = [0.0] * 15 + [value]
    model.embedding.embeddings.assign(embeddings)


def make_answering_model(**kwargs):
    """A model of which some answers end early, and some do not at all."""
    model = make_model(**{"seed": 3, **kwargs})
    # With other seeds and logits no answer ends, or all do.
    set_logit(model, model.tokenizer.pad_id, -100.0)
    return model


class TransformerTest(LayerTestCase):
    @parameterized.parameters(-100.0, 9.0)
    def test_cached_greedy_equals_uncached(self, padding_logit):
        model = make_answering_model(num_layers=2)
        # Read again, padding would be masked, and in the cache it is not.
        set_logit(model, model.tokenizer.pad_id, padding_logit)
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        expected = uncached_greedy(model, token_ids, max_length=6)
        self.assert_all_equal(model.generate(token_ids), expected)
        if padding_logit < 0.0:
            # A test of more than one answer, of which some end early.
            self.assertGreater(len(np.unique(expected, axis=0)), 2)
            self.assertTrue(np.any(expected == model.tokenizer.end_id))
            self.assertEqual(
                model.solve(QUESTIONS),
                list(map(model.tokenizer.decode, expected)),
            )

    def test_float_ids_are_not_rounded(self):
        # Of ids and padding: bfloat16 has no odd number above 256.
        vocabulary = [chr(code) for code in range(1000, 1300)]
        vocabulary[257], vocabulary[1], vocabulary[2] = VOCABULARY[:3]
        model = make_model(dtype="mixed_bfloat16", vocabulary=vocabulary)
        ids = np.array([[1, 259, 297, 2], [1, 299, 2, 257]], "int32")
        inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
        floats = {name: x.astype("float32") for name, x in inputs.items()}
        expected = logits(model, inputs)
        self.assert_all_equal(model(floats), expected)
        symbols = {name: keras.Input((None,), name=name) for name in inputs}
        functional = keras.Model(symbols, model(symbols))
        self.assert_all_equal(functional(floats), expected)
        self.assert_all_equal(
            model.generate(floats["encoder_token_ids"], 3),
            model.generate(ids, 3),
        )

    def test_dropout_only_when_training(self):
        model = make_model(dropout=0.5)
        expected = logits(make_model(), INPUTS)
        self.assert_all_equal(model(INPUTS), expected)
        self.assert_all_equal(model(INPUTS, training=False), expected)
        dropped = ops.convert_to_numpy(model(INPUTS, training=True))
        self.assertGreater(np.max(np.abs(dropped - expected)), 0.01)

    @pytest.mark.skipif(
        keras.backend.backend() == "tensorflow", reason="Keras cannot there."
    )
    def test_trains_under_rematerialization(self):
        def functional():
            x = keras.Input((6, 16))
            z = TPMultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
            z = EncoderCell(24, 2)(z)
            return keras.Model(x, DecoderCell(24, 2)(z, x))

        def language_model():
            sizes = {"hidden_dim": 16, "intermediate_dim": 24, "num_layers": 2}
            return TransformerXL.from_preset("transformer_xl_base", **sizes)

        array = np.random.default_rng(0).normal(size=(2, 6, 16))
        for make, loss, x, y in (
            (functional, "mse", array, array),
            (make_model, "auto", INPUTS, INPUTS["decoder_token_ids"]),
            (language_model, "auto", *2 * [INPUTS["decoder_token_ids"]]),
        ):
            losses = []
            for mode in (None, "full"):
                keras.utils.set_random_seed(0)
                with keras.RematScope(mode):
                    model = make()
                    model.compile("sgd", loss)
                    history = model.fit(x, y, epochs=3, verbose=0)
                losses.append(history.history["loss"])
            self.assert_all_close(*losses, rtol=1e-4)


class GenerateTest(LayerTestCase):
    def test_cached_beams_equal_uncached(self):
        model = make_answering_model()
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        sampler = BeamSampler(3)
        found = Generator(model, sampler, max_length=7).generate(token_ids)
        expected = uncached_beams(model, token_ids, 7, sampler)
        self.assertCountEqual(found, ["token_ids", "log_probs"])
        self.assert_all_equal(found["token_ids"], expected["token_ids"])
        self.assert_all_close(
            found["log_probs"], expected["log_probs"], rtol=1e-4
        )
        is_end = ops.convert_to_numpy(found["token_ids"]) == 2
        is_ended = np.any(is_end, axis=-1)
        self.assertTrue(np.any(is_ended))
        self.assertFalse(np.all(is_ended))

    def test_encodes_each_question_once(self):
        model = make_answering_model()
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        with mock.patch.object(
            Transformer, "encode", autospec=True, side_effect=Transformer.encode
        ) as encode:
            Generator(model, BeamSampler(3), 5).generate(token_ids)
        # Once, and not once for every beam.
        [call] = encode.call_args_list
        self.assertEqual(call.args[1].shape, token_ids.shape)


# Keras uses an option that JAX deprecates.
@pytest.mark.filterwarnings("ignore:.*`native_serialization`")
class ExportTest(LayerTestCase):
    @pytest.mark.slow
    def test_token_ids_to_logits_of_any_size(self):
        tf = pytest.importorskip("tensorflow")
        model = make_model()
        with tempfile.TemporaryDirectory() as folder:
            # Never called, and with its own weights.
            model.export(folder, verbose=False)
            loaded = tf.saved_model.load(folder)
            # Elsewhere every size is compiled: one is enough.
            on_tensorflow = keras.backend.backend() == "tensorflow"
            for size in (1, 2) if on_tensorflow else (2,):
                inputs = {
                    "encoder_token_ids": INPUTS["encoder_token_ids"][:size],
                    "decoder_token_ids": INPUTS["decoder_token_ids"][
                        :size, size:
                    ],
                }
                self.assert_all_close(
                    loaded.serve(inputs), logits(model, inputs)
                )


class InitializationTest(LayerTestCase):
    def assert_uniform(self, weight, limit):
        values = ops.convert_to_numpy(weight)
        self.assertLessEqual(np.max(np.abs(values)), limit)
        self.assertGreater(np.max(np.abs(values)), 0.9 * limit)
        self.assertAlmostEqual(
            np.std(values), limit / math.sqrt(3.0), delta=0.15 * limit
        )

    @parameterized.product(
        initialization=["paper", "released"], binding=["none", "hadamard"]
    )
    def test_follows_the_paper_or_the_released_code(
        self, initialization, binding
    ):
        config = TransformerConfig(
            hidden_dim=64,
            intermediate_dim=96,
            num_heads=4,
            num_layers=1,
            initialization=initialization,
            binding=binding,
        )
        model = Transformer(config)
        is_released = initialization == "released"
        embedding = model.embedding
        for matrix in (embedding.embeddings, embedding.role_dense.kernel):
            values = ops.convert_to_numpy(matrix)
            self.assertAlmostEqual(np.std(values), 1 / 8, delta=0.01)
            self.assertGreater(np.max(np.abs(values)), 2.5 / 8)
        maps = [
            layer
            for layer in model._flatten_layers()
            if isinstance(layer, Projection)
        ]
        self.assertLen(maps, 1 + 3 * (4 + (binding != "none")) + 2 * 2)
        for layer in maps:
            fan_in, fan_out = layer.kernel.matrix_shape
            limit = math.sqrt(6 / (fan_in + fan_out))
            # The initializer of the released TP-Attention is never called.
            # That of the released baseline is.
            if is_released and binding != "none" and "attention" in layer.path:
                limit = fan_in**-0.5
            if layer is not embedding.role_dense:
                self.assert_uniform(layer.kernel, limit)
            if is_released:
                self.assert_uniform(layer.bias, fan_in**-0.5)
            else:
                self.assertFalse(np.any(ops.convert_to_numpy(layer.bias)))
        if is_released:
            biases = {ops.convert_to_numpy(x.bias).tobytes() for x in maps}
            self.assertLen(biases, len(maps))

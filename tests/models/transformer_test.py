import math
import pathlib
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
from tpt_keras.layers import Projection
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig

BINDINGS = ("none", "hadamard", "tensor")
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
        next_logits[:, tokenizer.pad_id] = -np.inf  # No part of an answer.
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
    )


def is_up_to_the_end(token_ids, end_id):
    """Masks the tokens of answers `(..., length)` up to the end symbol."""
    is_end = token_ids == end_id
    return np.cumsum(is_end, axis=-1) - is_end == 0


def log_probs_of(model, encoder_token_ids, answers):
    """Log-probabilities of given answers `(batch, n, length)` by `call`."""
    batch_size, count, length = answers.shape
    flat = answers.reshape(-1, length)
    all_logits = logits(
        model,
        {
            "encoder_token_ids": np.repeat(encoder_token_ids, count, axis=0),
            "decoder_token_ids": np.pad(
                flat[:, :-1],
                ((0, 0), (1, 0)),
                constant_values=model.tokenizer.start_id,
            ),
        },
    ).astype("float64")
    log_probs = all_logits - np.log(
        np.sum(np.exp(all_logits), axis=-1, keepdims=True)
    )
    of_tokens = np.take_along_axis(log_probs, flat[..., None], -1)[..., 0]
    of_tokens *= is_up_to_the_end(flat, model.tokenizer.end_id)
    return np.sum(of_tokens, axis=-1).reshape(batch_size, count)


def save_and_load(model):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        model.save(path)
        return keras.saving.load_model(path)


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


def generate(model, token_ids, sampler="greedy", max_length=None):
    """`Generator.generate` as arrays."""
    found = Generator(model, sampler, max_length).generate(token_ids)
    return {name: ops.convert_to_numpy(x) for name, x in found.items()}


class TransformerTest(LayerTestCase):
    @parameterized.parameters(*BINDINGS)
    def test_cached_greedy_equals_uncached(self, binding):
        model = make_answering_model(binding=binding, num_layers=2)
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        expected = uncached_greedy(model, token_ids, max_length=6)
        decoded = model.generate(token_ids)
        self.assert_all_equal(decoded, expected)
        # A test of more than one answer, of which some end early.
        self.assertGreater(len(np.unique(expected, axis=0)), 2)
        self.assertTrue(np.any(expected == model.tokenizer.end_id))
        self.assertEqual(
            model.solve(QUESTIONS), list(map(model.tokenizer.decode, expected))
        )

    @parameterized.parameters(*BINDINGS)
    def test_decode_step_gives_the_models_logits(self, binding):
        model = make_model(binding=binding, num_layers=2)
        expected = logits(model, INPUTS)
        decoder_token_ids = INPUTS["decoder_token_ids"]
        cache = model.init_cache(INPUTS["encoder_token_ids"], max_length=4)
        for index in range(4):
            step_logits, cache = model.decode_step(
                decoder_token_ids[:, index], cache, index
            )
            self.assertEqual(tuple(step_logits.shape), (2, len(VOCABULARY)))
            is_real = decoder_token_ids[:, index] != 0
            self.assert_all_close(
                ops.convert_to_numpy(step_logits)[is_real],
                expected[is_real, index],
            )

    @parameterized.parameters(*BINDINGS)
    def test_padding_has_no_influence(self, binding):
        model = make_model(binding=binding)
        expected = logits(model, INPUTS)
        alone = {name: ids[1:] for name, ids in INPUTS.items()}
        self.assert_all_close(logits(model, alone), expected[1:])
        unpadded = {**alone, "encoder_token_ids": np.array([[1, 7, 2]])}
        self.assert_all_close(logits(model, unpadded), expected[1:])
        padded = {
            name: np.pad(ids, ((0, 0), (0, 3))) for name, ids in INPUTS.items()
        }
        is_real = INPUTS["decoder_token_ids"] != 0
        self.assert_all_close(
            logits(model, padded)[:, :4][is_real], expected[is_real]
        )

    def test_no_position_sees_a_later_token(self):
        model = make_model()
        expected = logits(model, INPUTS)
        ids = INPUTS["decoder_token_ids"].copy()
        ids[:, 2:] = 6
        changed = logits(model, {**INPUTS, "decoder_token_ids": ids})
        self.assert_all_close(changed[:, :2], expected[:, :2])
        self.assertGreater(np.max(np.abs(changed - expected)), 0.01)

    @parameterized.parameters(
        *((binding, None) for binding in BINDINGS),
        ("hadamard", "mixed_bfloat16"),
    )
    @pytest.mark.slow
    def test_keras_file_gives_identical_logits(self, binding, dtype):
        model = make_model(
            binding=binding,
            dtype=dtype,
            dropout=0.25,
            vocabulary=("<pad>", "<start>", "<end>", *"xyz0+="),
            vocabulary_size=12,
        )
        loaded = save_and_load(model)
        self.assertIs(type(loaded), Transformer)
        self.assertEqual(loaded.config, model.config)
        self.assertEqual(loaded.dtype_policy, model.dtype_policy)
        self.assertEqual(loaded.tokenizer.vocabulary, model.config.vocabulary)
        self.assert_all_equal(logits(loaded, INPUTS), logits(model, INPUTS))
        self.assertEqual(loaded.solve(["x+y="]), model.solve(["x+y="]))

    def test_mixed_precision(self):
        model = make_model(dtype="mixed_bfloat16")
        outputs = model(INPUTS)
        self.assertEqual(
            keras.backend.standardize_dtype(outputs.dtype), "float32"
        )
        for cell in model.encoder_cells + model.decoder_cells:
            self.assertEqual(cell.compute_dtype, "bfloat16")
        encoded = model.encode(INPUTS["encoder_token_ids"])
        self.assertEqual(
            keras.backend.standardize_dtype(encoded.dtype), "bfloat16"
        )
        for weight in model.weights:
            self.assertEqual(
                keras.backend.standardize_dtype(weight.dtype), "float32"
            )
        full = make_model()
        difference = np.abs(
            ops.convert_to_numpy(outputs) - logits(full, INPUTS)
        )
        self.assertLess(np.mean(difference), 0.1)
        self.assertGreater(np.max(difference), 0.0)
        self.assertLen(model.solve(QUESTIONS), len(QUESTIONS))

    @parameterized.parameters("mixed_bfloat16", "mixed_float16")
    @pytest.mark.slow
    def test_float_ids_are_not_rounded(self, dtype):
        # Of ids and padding: bfloat16 has no odd number above 256.
        vocabulary = [chr(code) for code in range(1000, 1300)]
        vocabulary[257], vocabulary[1], vocabulary[2] = VOCABULARY[:3]
        model = make_model(dtype=dtype, vocabulary=vocabulary)
        ids = np.array([[1, 259, 297, 2], [1, 299, 2, 257]], "int32")
        inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
        floats = {name: x.astype("float32") for name, x in inputs.items()}
        expected = logits(model, inputs)
        self.assert_all_equal(model(floats), expected)
        symbols = {name: keras.Input((None,), name=name) for name in inputs}
        functional = keras.Model(symbols, model(symbols))
        self.assert_all_equal(functional(floats), expected)
        self.assert_all_equal(
            model.padding_mask(floats["encoder_token_ids"]), ids != 257
        )
        self.assert_all_equal(
            model.generate(floats["encoder_token_ids"], 3),
            model.generate(ids, 3),
        )
        generator = Generator(model)
        self.assert_all_equal(
            generator.generate_on_batch(floats["encoder_token_ids"])["scores"],
            generator.generate_on_batch(ids)["scores"],
        )

    def test_dropout_only_when_training(self):
        model = make_model(dropout=0.5)
        expected = logits(make_model(), INPUTS)
        self.assert_all_equal(model(INPUTS), expected)
        self.assert_all_equal(model(INPUTS, training=False), expected)
        dropped = ops.convert_to_numpy(model(INPUTS, training=True))
        self.assertGreater(np.max(np.abs(dropped - expected)), 0.01)

    def test_one_seed_one_model(self):
        models = []
        for seed in (5, 5, 6):
            keras.utils.set_random_seed(seed)
            models.append(Transformer(CONFIG))
        first, second, third = (model.get_weights() for model in models)
        for weight, other in zip(first, second, strict=True):
            self.assert_all_equal(weight, other)
        self.assertFalse(np.array_equal(first[0], third[0]))


class GenerateTest(LayerTestCase):
    def assert_found_equal(self, found, expected):
        self.assertCountEqual(found, ["token_ids", "log_probs", "scores"])
        self.assert_all_equal(found["token_ids"], expected["token_ids"])
        for name in ("log_probs", "scores"):
            self.assert_all_close(found[name], expected[name], rtol=1e-4)

    def test_generate_is_greedy(self):
        model = make_answering_model()
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        found = generate(model, token_ids)
        self.assertEqual(found["token_ids"].shape, (8, 1, 6))
        self.assert_all_equal(
            found["token_ids"][:, 0], model.generate(token_ids)
        )
        self.assert_all_equal(found["scores"], found["log_probs"])
        short = generate(model, token_ids, max_length=3)
        self.assert_all_equal(short["token_ids"], found["token_ids"][..., :3])

    @parameterized.product(beam_width=[1, 4], length_penalty=[0.0, 0.6])
    def test_scores_are_those_of_the_answers(self, beam_width, length_penalty):
        model = make_answering_model()
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        sampler = BeamSampler(beam_width, length_penalty)
        found = generate(model, token_ids, sampler)
        answers = found["token_ids"]
        self.assertEqual(answers.shape, (8, beam_width, 6))
        self.assertEqual(
            [found[name].dtype.name for name in sorted(found)],
            ["float32", "float32", "int32"],
        )
        log_probs = log_probs_of(model, token_ids, answers)
        self.assert_all_close(found["log_probs"], log_probs, rtol=1e-4)
        lengths = np.sum(answers != model.tokenizer.pad_id, axis=-1)
        self.assertGreater(len(np.unique(lengths)), 1)
        scores = log_probs / ((5.0 + lengths) / 6.0) ** length_penalty
        self.assert_all_close(found["scores"], scores, rtol=1e-4)
        # The best first, and none twice.
        self.assertTrue(np.all(np.diff(found["scores"]) <= 0.0))
        for row in answers:
            self.assertLen(np.unique(row, axis=0), beam_width)

    @pytest.mark.slow
    def test_padding_is_never_an_answer(self):
        # Read again, padding would be masked, and in the cache it is not.
        model = make_model(seed=3)
        set_logit(model, model.tokenizer.pad_id, 9.0)
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        likeliest = np.argmax(logits(model, INPUTS), axis=-1)
        self.assert_all_equal(likeliest, np.zeros_like(likeliest))
        greedy = generate(model, token_ids, BeamSampler(1, 0.6))
        self.assert_all_equal(
            greedy["token_ids"][:, 0],
            uncached_greedy(model, token_ids, max_length=6),
        )
        sampler = BeamSampler(3, 0.6)
        beam = generate(model, token_ids, sampler)
        self.assert_found_equal(
            beam, uncached_beams(model, token_ids, 6, sampler)
        )
        for found in (greedy, beam):
            answers = found["token_ids"]
            is_answer = is_up_to_the_end(answers, model.tokenizer.end_id)
            self.assert_all_equal(answers != 0, is_answer)
            log_probs = log_probs_of(model, token_ids, answers)
            self.assert_all_close(found["log_probs"], log_probs, rtol=1e-4)
            lengths = np.sum(is_answer, axis=-1)
            self.assert_all_close(
                found["scores"],
                log_probs / ((5.0 + lengths) / 6.0) ** 0.6,
                rtol=1e-4,
            )

    @parameterized.parameters(1, 3)
    def test_answers_without_end_have_the_longest_length(self, beam_width):
        model = make_model()
        set_logit(model, model.tokenizer.end_id, -100.0)
        set_logit(model, model.tokenizer.start_id, -100.0)
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        found = generate(model, token_ids, BeamSampler(beam_width))
        self.assertEqual(found["token_ids"].shape, (8, beam_width, 6))
        for row in found["token_ids"].reshape(-1, 6):
            self.assertLen(model.tokenizer.decode(row), 6)
        self.assert_all_close(
            found["log_probs"],
            log_probs_of(model, token_ids, found["token_ids"]),
            rtol=1e-4,
        )

    @parameterized.parameters(*BINDINGS)
    @pytest.mark.slow
    def test_cached_beam_equals_uncached(self, binding):
        model = make_answering_model(binding=binding, num_layers=2)
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        sampler = BeamSampler(3, 0.6)
        found = generate(model, token_ids, sampler, max_length=7)
        expected = uncached_beams(model, token_ids, 7, sampler)
        self.assert_found_equal(found, expected)
        is_ended = np.any(found["token_ids"] == model.tokenizer.end_id, axis=-1)
        self.assertTrue(np.any(is_ended))
        self.assertFalse(np.all(is_ended))

    @parameterized.product(beam_width=[1, 3], max_length=[5])
    def test_encodes_each_question_once(self, beam_width, max_length):
        model = make_answering_model()
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        with mock.patch.object(
            TPMultiHeadAttention,
            "project_keys_and_values",
            autospec=True,
            side_effect=TPMultiHeadAttention.project_keys_and_values,
        ) as project:
            generate(model, token_ids, BeamSampler(beam_width), max_length)
        batch_sizes = {cell.name: [] for cell in model.decoder_cells}
        for call in project.call_args_list:
            for cell in model.decoder_cells:
                if call.args[0] is cell.cross_attention:
                    batch_sizes[cell.name].append(call.args[1].shape[0])
        # Once, and not once for every beam.
        self.assertEqual(
            batch_sizes, {cell.name: [8] for cell in model.decoder_cells}
        )

    @parameterized.parameters(1, 3)
    @pytest.mark.slow
    def test_padding_of_questions_has_no_influence(self, beam_width):
        model = make_answering_model()
        questions = ["1+2", "33+21+0+1"]
        token_ids = model.tokenizer.encode_questions(questions)
        found = generate(model, token_ids, BeamSampler(beam_width))
        padded = np.pad(token_ids, ((0, 0), (0, 5)))
        self.assert_found_equal(
            generate(model, padded, BeamSampler(beam_width)), found
        )
        alone = model.tokenizer.encode_questions(questions[:1])
        self.assertLess(alone.shape[1], token_ids.shape[1])
        self.assert_found_equal(
            generate(model, alone, BeamSampler(beam_width)),
            {name: values[:1] for name, values in found.items()},
        )


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

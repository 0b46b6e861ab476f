import math
import pathlib
import tempfile

import keras
import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tpt_keras.errors import UsageError
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig

BINDINGS = ("none", "hadamard", "tensor")
VOCABULARY = ("<pad>", "<start>", "<end>", *"+0123")
CONFIG = TransformerConfig(
    hidden_dim=16,
    intermediate_dim=24,
    num_heads=2,
    num_layers=2,
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
        next_ids = np.argmax(all_logits[:, ids.shape[1] - 1], axis=-1)
        next_ids = np.where(is_ended, tokenizer.pad_id, next_ids)
        is_ended |= next_ids == tokenizer.end_id
        ids = np.concatenate([ids, next_ids[:, None]], axis=1).astype("int32")
    return ids[:, 1:]


def save_and_load(model):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.keras"
        model.save(path)
        return keras.saving.load_model(path)


def never_answer_pad(model):
    """Makes the pad symbol, which a later step would mask, the least likely."""
    output_layer_norm = model.decoder_cells[-1].output_layer_norm
    gamma, beta = output_layer_norm.get_weights()
    gamma[-1], beta[-1] = 0.0, 1.0
    output_layer_norm.set_weights([gamma, beta])
    embeddings = model.embedding.get_weights()[0]
    embeddings[model.tokenizer.pad_id] = [0.0] * 15 + [-100.0]
    model.embedding.embeddings.assign(embeddings)


class TransformerTest(LayerTestCase):
    @parameterized.parameters(*BINDINGS)
    def test_cached_greedy_equals_uncached(self, binding):
        # With this seed some answers end early and some do not.
        model = make_model(seed=3, binding=binding)
        never_answer_pad(model)
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        expected = uncached_greedy(model, token_ids, max_length=7)
        decoded = model.generate(token_ids)
        self.assert_all_equal(decoded, expected)
        # A test of more than one answer, of which some end early.
        self.assertGreater(len(np.unique(expected, axis=0)), 2)
        self.assertTrue(np.any(expected == model.tokenizer.end_id))
        self.assertEqual(
            model.solve(QUESTIONS), list(map(model.tokenizer.decode, expected))
        )

    def test_generate_stops_at_max_length(self):
        model = make_model()
        token_ids = model.tokenizer.encode_questions(QUESTIONS)
        whole = ops.convert_to_numpy(model.generate(token_ids))
        self.assertEqual(whole.shape, (8, 7))
        self.assert_all_equal(model.generate(token_ids, 3), whole[:, :3])

    @parameterized.parameters(*BINDINGS)
    def test_decode_step_gives_the_models_logits(self, binding):
        model = make_model(binding=binding)
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

    def test_encode(self):
        model = make_model()
        token_ids = INPUTS["encoder_token_ids"]
        encoded = ops.convert_to_numpy(model.encode(token_ids))
        self.assertEqual(encoded.shape, (2, 6, 16))
        x = model.embedding(token_ids)
        for cell in model.encoder_cells:
            x = cell(x, padding_mask=token_ids != 0)
        self.assert_all_close(encoded, x)
        # No word order, no sum.
        swapped = model.encode(token_ids[:, [0, 3, 2, 1, 4, 5]])
        self.assertGreater(
            np.max(np.abs(ops.convert_to_numpy(swapped) - encoded)), 0.01
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

    def test_config_round_trip(self):
        model = make_model(dtype="mixed_bfloat16", binding="tensor")
        revived = Transformer.from_config(model.get_config())
        self.assertEqual(revived.get_config(), model.get_config())
        self.assertEqual(revived.config, model.config)

    def test_saving_after_solving(self):
        # What compiles the decoding must not become a part of the model.
        model = make_model(num_layers=1)
        count = len(model.weights)
        answers = model.solve(QUESTIONS)
        self.assertLen(model.weights, count)
        self.assertEqual(save_and_load(model).solve(QUESTIONS), answers)

    def test_solve_sees_new_weights(self):
        model = make_model(seed=0, num_layers=1)
        other = make_model(seed=1, num_layers=1)
        expected = other.solve(QUESTIONS)
        self.assertNotEqual(model.solve(QUESTIONS), expected)
        model.set_weights(other.get_weights())
        self.assertEqual(model.solve(QUESTIONS), expected)

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

    @pytest.mark.slow
    def test_trains(self):
        model = Transformer(CONFIG.replace(num_layers=1))
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        targets = np.roll(INPUTS["decoder_token_ids"], -1, axis=1)
        history = model.fit(
            INPUTS, targets, epochs=12, batch_size=2, verbose=0
        ).history["loss"]
        self.assertLess(history[-1], 0.5 * history[0])

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


class SolveTest(LayerTestCase):
    def test_answers_in_the_order_of_the_questions(self):
        model = make_model(num_layers=1)
        answers = model.solve(QUESTIONS)
        self.assertEqual(model.solve(QUESTIONS[::-1]), answers[::-1])
        self.assertEqual(model.solve(QUESTIONS, batch_size=3), answers)
        self.assertEqual(model.solve([]), [])
        for answer in answers:
            self.assertLessEqual(len(answer), 7)

    @parameterized.named_parameters(
        ("empty", ["1+1", ""], "empty"),
        ("too_long", ["1" * 13], "13 characters.*at most 12"),
        ("unknown", ["1+4"], "'4' \\(position 2"),
    )
    def test_questions_that_are_refused(self, questions, message):
        with self.assertRaisesRegex(UsageError, message):
            make_model().solve(questions)

    def test_one_string_is_no_list(self):
        with self.assertRaisesRegex(TypeError, "list of strings"):
            make_model().solve("1+1")


class InitializationTest(LayerTestCase):
    def make(self, **overrides):
        return Transformer(
            TransformerConfig(
                hidden_dim=64,
                intermediate_dim=96,
                num_heads=4,
                num_layers=1,
                **overrides,
            )
        )

    def assert_uniform(self, weight, limit):
        values = ops.convert_to_numpy(weight)
        self.assertLessEqual(np.max(np.abs(values)), limit)
        self.assertGreater(np.max(np.abs(values)), 0.9 * limit)
        self.assertAlmostEqual(
            np.std(values), limit / math.sqrt(3.0), delta=0.15 * limit
        )

    def attention_maps(self, model):
        encoder_cell, decoder_cell = (
            model.encoder_cells[0],
            model.decoder_cells[0],
        )
        for attention in (
            encoder_cell.self_attention,
            decoder_cell.self_attention,
            decoder_cell.cross_attention,
        ):
            for name in ("query", "key", "value", "role", "output"):
                dense = getattr(attention, f"{name}_dense")
                if dense is not None:
                    yield dense

    @parameterized.product(
        initialization=["paper", "released"], binding=["none", "hadamard"]
    )
    def test_outside_attention(self, initialization, binding):
        model = self.make(initialization=initialization, binding=binding)
        for matrix in (
            model.embedding.embeddings,
            model.embedding.role_dense.kernel,
        ):
            values = ops.convert_to_numpy(matrix)
            self.assertAlmostEqual(np.std(values), 1 / 8, delta=0.01)
            self.assertGreater(np.max(np.abs(values)), 2.5 / 8)
        for cell in (*model.encoder_cells, *model.decoder_cells):
            for dense in (
                cell.feed_forward.intermediate_dense,
                cell.feed_forward.output_dense,
            ):
                self.assert_uniform(dense.kernel, math.sqrt(6 / (64 + 96)))
                self.assertFalse(np.any(ops.convert_to_numpy(dense.bias)))

    @parameterized.named_parameters(
        ("paper", "paper", "hadamard", 15),
        ("paper_baseline", "paper", "none", 12),
        # The released baseline does call its Xavier initialiser.
        ("released_baseline", "released", "none", 12),
    )
    def test_xavier_attention(self, initialization, binding, count):
        model = self.make(initialization=initialization, binding=binding)
        maps = list(self.attention_maps(model))
        self.assertLen(maps, count)
        for dense in maps:
            self.assert_uniform(dense.kernel, math.sqrt(6 / (64 + 64)))
            self.assertFalse(np.any(ops.convert_to_numpy(dense.bias)))

    def test_released_attention(self):
        maps = list(self.attention_maps(self.make(initialization="released")))
        self.assertLen(maps, 15)
        for dense in maps:
            self.assert_uniform(dense.kernel, 1 / 8)
            self.assert_uniform(dense.bias, 1 / 8)
        # Every map draws its own.
        biases = [ops.convert_to_numpy(dense.bias).ravel() for dense in maps]
        self.assertLen({bias.tobytes() for bias in biases}, 15)

import keras
import numpy as np
import pytest
from absl.testing import parameterized
from keras import ops

from tests.layer_test_case import LayerTestCase
from tests.layer_test_case import saved_and_loaded
from tests.refusals import refused
from tpt_keras.errors import UsageError
from tpt_keras.language_model import TransformerXL
from tpt_keras.language_model import TransformerXLConfig

pytestmark = pytest.mark.slow_on_jax

CONFIG = TransformerXLConfig(
    vocabulary_size=7,
    hidden_dim=8,
    intermediate_dim=12,
    num_heads=2,
    num_layers=3,
    memory_length=12,
)
# The map is the output map, nothing is remembered.
MULTI_LINEAR = {
    "num_heads": 3,
    "key_dim": 2,
    "memory_length": 0,
    "attention": "multi_linear",
    "attention_options": {"max_length": 12, "output_dim": 8},
    "positions": "sinusoidal",
}
TOKEN_IDS = np.random.default_rng(5).integers(0, 7, size=(2, 12))


def make_model(batch_size=None, **overrides):
    keras.utils.set_random_seed(3)
    model = TransformerXL(CONFIG.replace(**overrides), batch_size)
    for weight in model.trainable_weights:
        if not weight.path.endswith("gamma"):
            weight.assign(weight + 0.2 * keras.random.normal(weight.shape))
    return model


def by_segments(model, length, memory):
    logits = []
    for start in range(0, TOKEN_IDS.shape[1], length):
        segment = TOKEN_IDS[:, start : start + length]
        if memory is None:
            logits.append(model(segment))
        else:
            step, memory = model(segment, memory)
            logits.append(step)
    return ops.concatenate(logits, axis=1)


class TransformerXLTest(LayerTestCase):
    @parameterized.parameters(
        {},
        {"binding": "hadamard"},
        {"attention": "dot_product", "positions": "rotary"},
        {"attention": "relational"},
    )
    def test_segments_with_full_memory_equal_one_pass(self, **overrides):
        model = make_model(**overrides)
        expected = model(TOKEN_IDS)
        actual = by_segments(model, 4, model.init_memory(2))
        self.assert_all_close(actual, expected, 1e-5, 1e-5)

    def test_kept_memory_equals_a_passed_one(self):
        model, kept = make_model(), make_model(batch_size=2)
        expected = by_segments(model, 4, model.init_memory(2))
        for _ in range(2):
            self.assert_all_equal(by_segments(kept, 4, None), expected)
            kept.reset_memory()
        forgotten = kept(TOKEN_IDS[:, :4])
        self.assert_all_equal(forgotten, expected[:, :4])

    def test_stream_can_restart_beside_others(self):
        model = make_model()
        _, memory = model(TOKEN_IDS[:, :4], model.init_memory(2))
        memory["length"] = ops.array([4, 0], dtype="int32")
        logits, memory = model(TOKEN_IDS[:, 4:8], memory)
        self.assert_all_close(logits[:1], model(TOKEN_IDS[:1, :8])[:, 4:])
        self.assert_all_close(logits[1:], model(TOKEN_IDS[1:, 4:8]))
        self.assert_all_equal(memory["length"], np.array([8, 4], "int32"))

    @parameterized.parameters({}, MULTI_LINEAR)
    def test_later_tokens_change_nothing(self, **overrides):
        model = make_model(**overrides)
        changed = TOKEN_IDS.copy()
        changed[:, 5:] = (changed[:, 5:] + 1) % 7
        self.assert_all_equal(model(changed)[:, :5], model(TOKEN_IDS)[:, :5])

    def test_segments_without_a_memory_are_independent(self):
        model = make_model(**MULTI_LINEAR)
        first = model(TOKEN_IDS[:, 4:8])
        logits, memory = model(TOKEN_IDS[:, :4], model.init_memory(2))
        self.assertEqual(memory["states"][0].shape, (2, 0, 8))
        logits, memory = model(TOKEN_IDS[:, 4:8], memory)
        self.assert_all_close(logits, first, 1e-5)
        self.assert_all_equal(memory["length"], np.array([0, 0], "int32"))

    @parameterized.parameters(1, 3, 4)
    def test_same_length_gives_every_position_as_many(self, segment_length):
        # With one layer, what a position sees is all that it depends on.
        options = {"num_layers": 1, "memory_length": 4, "same_length": True}
        model = make_model(**options)
        logits = by_segments(model, segment_length, model.init_memory(2))
        for last in range(3, TOKEN_IDS.shape[1]):
            seen = TOKEN_IDS[:, last - 3 : last + 1]
            self.assert_all_close(logits[:, last], model(seen)[:, -1])
            # Itself and three before, the first of them too.
            changed = seen.copy()
            changed[:, 0] = (changed[:, 0] + 1) % 7
            difference = model(changed)[:, -1] - logits[:, last]
            self.assertGreater(
                np.abs(ops.convert_to_numpy(difference)).max(), 1e-4
            )

    def test_no_gradient_reaches_the_memory(self):
        model = make_model()
        memory = model.init_memory(2)
        _, memory = model(TOKEN_IDS[:, :4], memory)
        table = model.embedding.trainable_weights[0]
        if keras.backend.backend() == "tensorflow":
            import tensorflow as tf

            with tf.GradientTape() as tape:
                _, memory = model(TOKEN_IDS[:, :4], memory)
                total = ops.sum(memory["states"][1])
            self.assertIsNone(tape.gradient(total, table.value))
        elif keras.backend.backend() == "torch":
            _, memory = model(TOKEN_IDS[:, :4], memory)
            self.assertFalse(memory["states"][1].requires_grad)
        else:
            import jax

            def total(value):
                with keras.StatelessScope(state_mapping=[(table, value)]):
                    _, new = model(TOKEN_IDS[:, :4], memory)
                return ops.sum(new["states"][1])

            self.assertEqual(np.abs(jax.grad(total)(table.value)).max(), 0)

    def test_layers_share_the_biases_of_queries(self):
        model = make_model()
        names = [weight.name for weight in model.weights]
        self.assertEqual(names.count("content_bias"), 1)
        self.assertEqual(names.count("position_bias"), 1)
        self.assertEqual(names.count("position_kernel"), CONFIG.num_layers)
        shared = ["content_bias", "position_bias"]
        for weight in model.cells[0].weights:
            is_shared = any(weight is w for w in model.cells[1].weights)
            self.assertEqual(is_shared, weight.name in shared, weight.path)

    @parameterized.parameters(
        ("transformer_xl_base", 41_055_436),
        # 2,560,000 are the embedding's, 786,432 the three maps'.
        ("tensorized_transformer", 6_684_452),
    )
    @pytest.mark.slow
    def test_has_the_size_of_the_paper(self, preset, count):
        model = TransformerXL.from_preset(preset)
        self.assertEqual(model.count_params(), count)

    @pytest.mark.slow
    def test_trained_model_is_saved_with_its_memory(self):
        model = TransformerXL(CONFIG, batch_size=2, dtype="mixed_bfloat16")
        model.compile(
            "sgd",
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            run_eagerly=keras.backend.backend() == "tensorflow",
        )
        before = [ops.convert_to_numpy(w) for w in model.trainable_weights]
        model.fit(
            np.concatenate([TOKEN_IDS[:, :4], TOKEN_IDS[:, 4:8]]),
            np.concatenate([TOKEN_IDS[:, 1:5], TOKEN_IDS[:, 5:9]]),
            batch_size=2,
            shuffle=False,
            verbose=0,
        )
        for weight, old in zip(model.trainable_weights, before):
            self.assertTrue(np.any(ops.convert_to_numpy(weight) != old))
        self.assert_all_equal(model.memory["length"], np.array([8, 8], "int32"))
        loaded = saved_and_loaded(model)
        self.assertEqual(loaded.config, CONFIG)
        # The memory of its streams is saved with it.
        self.assert_all_equal(loaded(TOKEN_IDS), model(TOKEN_IDS))

    def test_float_ids_are_not_rounded(self):
        # bfloat16 has no odd number above 256.
        model = TransformerXL(
            CONFIG.replace(vocabulary_size=300), dtype="mixed_bfloat16"
        )
        ids = np.array([[1, 257, 299]], "int32")
        self.assert_all_equal(model(ids.astype("float32")), model(ids))

    @parameterized.parameters(
        ({"num_layers": 0}, "num_layers"),
        ({"hidden_dim": 9}, "num_heads"),
        ({"same_length": "no"}, "same_length"),
        ({"layer_norm_epsilon": -1.0}, "layer_norm_epsilon"),
        ({"attention": "dot"}, "dot"),
        ({"positions": "here"}, "positions"),
        ({"memory_length": -1}, "memory_length"),
        ({"memory_length": 0, "same_length": True}, "same_length"),
        ({"positions": "sinusoidal"}, "memory_length"),
        ({"positions": "rotary"}, "positions"),
        ({**MULTI_LINEAR, "memory_length": 4}, "memory_length"),
        ({**MULTI_LINEAR, "hidden_dim": 6}, "output_dim"),
    )
    def test_invalid_configuration_is_refused(self, values, name):
        with refused(part=name):
            CONFIG.replace(**values)

    def test_invalid_arguments_are_refused(self):
        for call in (
            lambda: TransformerXL.from_preset("xl"),
            lambda: TransformerXL("transformer_xl_base"),
            lambda: TransformerXL(CONFIG, batch_size=0),
            lambda: make_model().reset_memory(),
            lambda: make_model(batch_size=3)(TOKEN_IDS),
        ):
            self.assertRaises(UsageError, call)


class GenerateTest(LayerTestCase):
    PROMPT = b"abcdabcdba" * 7

    def test_greedy_text_has_the_likeliest_bytes(self):
        # A position sees as many as the prompt has.
        model = make_model(
            vocabulary=b"abcd", memory_length=70, same_length=True, num_layers=1
        )
        written = model.generate(self.PROMPT, length=3, temperature=0)
        text = self.PROMPT + written
        window = len(self.PROMPT)
        ids = np.array([[b"abcd".index(symbol) for symbol in text]])
        for place in range(len(self.PROMPT), len(text)):
            logits = model(ids[:, place - window : place])[0, -1]
            likeliest = int(ops.argmax(logits[:4]))
            self.assertEqual(b"abcd"[likeliest], text[place])

    @pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
    def test_changed_variables_are_read(self):
        model = make_model(vocabulary=b"abcd", num_layers=1)
        before = model.generate("ab", 30, seed=1)
        model.quantize("int8")
        for weight in model.weights:
            if weight.dtype == "int8":
                weight.assign(np.zeros(weight.shape, "int8"))
        after = model.generate("ab", 30, seed=1)
        self.assertNotEqual(before, after)
        model._predict = None
        self.assertEqual(after, model.generate("ab", 30, seed=1))

    def test_model_without_memory_is_refused(self):
        model = make_model(vocabulary=b"abcd", **MULTI_LINEAR)
        with refused("memory_length"):
            model.generate("ab")

    def test_text_depends_on_the_seed(self):
        model = make_model(vocabulary=b"abcd")
        texts = {model.generate("ab", 30, seed=seed) for seed in (1, 1, 2, 3)}
        self.assertLen(texts, 3)
        self.assertEqual({len(text) for text in texts}, {30})
        self.assertLessEqual(set("".join(texts)), set("abcd"))
        # Generating leaves the model as it was.
        again = saved_and_loaded(model).generate("ab", 30, seed=1)
        self.assertIn(again, texts)

    @parameterized.parameters(
        {"prompt": ""},
        {"prompt": "x"},
        {"length": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
    )
    def test_invalid_arguments_are_refused(self, **arguments):
        model = make_model(vocabulary=b"abcd", num_layers=1)
        with refused(*arguments):
            model.generate(**{"prompt": "ab", **arguments})

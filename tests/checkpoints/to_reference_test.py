import pathlib
import tempfile
from unittest import mock

import keras
import numpy as np
import pytest
from absl.testing import parameterized

from tests.checkpoints.released_vocabulary import SYMBOLS
from tpt_keras.checkpoints import from_reference
from tpt_keras.checkpoints import read_vocabulary
from tpt_keras.checkpoints import save_reference
from tpt_keras.checkpoints import to_reference
from tpt_keras.checkpoints.reference_weights import ENCODER_CELL
from tpt_keras.errors import UsageError
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import Transformer

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
NO_TORCH = "the released checkpoints need tpt_keras[torch]"
SMALL = {
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "num_heads": 2,
    "num_layers": 2,
}


def small_model(preset, **overrides):
    """A small model, every weight of which is random, biases included."""
    model = Transformer.from_preset(preset, **{**SMALL, **overrides})
    rng = np.random.default_rng(11)
    model.set_weights(
        [rng.normal(size=weight.shape) for weight in model.weights]
    )
    return model


class ToReferenceTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = (
            pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
            / "checkpoint.pt"
        )

    def assert_same_model(self, model, expected):
        self.assertEqual(model.config, expected.config)
        self.assert_same_weights(model, expected)

    def assert_same_weights(self, model, expected):
        self.assertEqual(len(model.weights), len(expected.weights))
        for weight, other in zip(model.weights, expected.weights):
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(weight),
                keras.ops.convert_to_numpy(other),
            )

    @parameterized.parameters(
        "transformer", "tp_transformer", "tp_transformer_b"
    )
    def test_there_and_back(self, preset):
        pytest.importorskip("torch", reason=NO_TORCH)
        model = small_model(preset)
        save_reference(model, self.path)
        self.assert_same_model(from_reference(self.path, num_heads=2), model)

    def test_there_and_back_with_more_rows_than_symbols(self):
        pytest.importorskip("torch", reason=NO_TORCH)
        model = small_model("tp_transformer", vocabulary_size=80)
        save_reference(model, self.path)
        self.assert_same_model(from_reference(self.path, num_heads=2), model)

    @parameterized.parameters("tp_transformer", "transformer")
    def test_back_and_there(self, name):
        torch = pytest.importorskip("torch", reason=NO_TORCH)
        golden = GOLDEN / f"{name}_small.pt"
        save_reference(from_reference(golden, num_heads=4), self.path)
        expected = torch.load(golden, weights_only=True)
        written = torch.load(self.path, weights_only=True)
        # The released code reads all of these keys.
        self.assertLessEqual(expected.keys(), written.keys())
        expected, written = expected["model"], written["model"]
        self.assertEqual(written.keys(), expected.keys())
        for key, tensor in expected.items():
            self.assertEqual(written[key].dtype, tensor.dtype)
            if key == "module.embedding.pe":  # computed, not read
                self.assertEqual(written[key].shape, tensor.shape)
                np.testing.assert_allclose(written[key], tensor, atol=2e-5)
            else:
                np.testing.assert_array_equal(written[key], tensor)

    def test_optimizer_state_fits(self):
        torch = pytest.importorskip("torch", reason=NO_TORCH)
        save_reference(small_model("transformer"), self.path)
        checkpoint = torch.load(self.path, weights_only=True)
        parameters = [
            torch.nn.Parameter(tensor)
            for name, tensor in checkpoint["model"].items()
            if name != "module.embedding.pe"
        ]
        optimizer = torch.optim.Adam(parameters)
        optimizer.load_state_dict(checkpoint["optimizer"])
        self.assertEqual(optimizer.param_groups[0]["betas"], (0.9, 0.995))

    def test_old_stream_format(self):
        pytest.importorskip("torch", reason=NO_TORCH)
        save_reference(small_model("transformer"), self.path)
        # PyTorch 1.1, which the released code runs on, reads no zip archives.
        self.assertEqual(self.path.read_bytes()[:1], b"\x80")

    @parameterized.parameters(
        ("transformer", 44_188_160),
        ("tp_transformer", 49_178_624),
        ("tp_transformer_b", 43_001_760),
        ("tp_transformer_c", 30_023_168),
    )
    def test_number_of_weights(self, preset, expected):
        # Two layers tell the size of all six; the full size has its own test.
        counts = {}
        for num_layers in (1, 2):
            model = Transformer.from_preset(
                preset,
                num_layers=num_layers,
                vocabulary=read_vocabulary(SYMBOLS),
            )
            state = to_reference(model)
            del state["embedding.pe"]
            counts[num_layers] = sum(array.size for array in state.values())
            self.assertEqual(counts[num_layers], model.count_params())
        per_layer = counts[2] - counts[1]
        self.assertEqual(counts[1] + 5 * per_layer, expected)

    @pytest.mark.slow
    @pytest.mark.exhaustive
    def test_full_size(self):
        torch = pytest.importorskip("torch", reason=NO_TORCH)
        keras.utils.set_random_seed(5)
        model = Transformer.from_preset(
            "tp_transformer",
            vocabulary=read_vocabulary(SYMBOLS),
            initialization="released",
        )
        self.assertEqual(model.count_params(), 49_178_624)
        # Tied to the logits, the embedding of the start symbol would make it
        # follow itself for ever, and every answer empty.
        embeddings = np.array(model.embedding.embeddings)
        embeddings[model.tokenizer.start_id] = 0.0
        model.embedding.embeddings.assign(embeddings)
        save_reference(model, self.path)
        loaded = from_reference(self.path, vocabulary=SYMBOLS)
        self.assertEqual(
            loaded.config, model.config.replace(initialization="paper")
        )
        self.assertEqual(loaded.count_params(), 49_178_624)
        # All that an answer depends on, so that one model's are the other's.
        self.assert_same_weights(loaded, model)
        questions = ["What is the tens digit of 31859?", "Solve 2*x = 4 for x."]
        answers = loaded.solve(questions)
        self.assertTrue(all(answers))
        if keras.backend.backend() == "tensorflow":
            self.assertEqual(self.export_and_ask(loaded, questions), answers)
        state = torch.load(self.path, weights_only=True)["model"]
        np.testing.assert_array_equal(
            to_reference(loaded)["decoder.layers.5.encAttn.W_o.weight"],
            state["module.decoder.layers.5.encAttn.W_o.weight"],
        )

    def export_and_ask(self, model, questions):
        """A SavedModel's answers."""
        import tensorflow as tf

        from tpt_keras.serving.export import export

        version = export(model, self.path.parent / "export")
        signature = tf.saved_model.load(version).signatures["serving_default"]
        answers = signature(questions=tf.constant(questions))["answers"]
        return [answer.decode() for answer in answers.numpy()]

    @pytest.mark.slow
    def test_refuses_what_the_released_code_cannot_compute(self):
        with self.assertRaisesRegex(UsageError, "no binding 'tensor'"):
            to_reference(small_model("tp_transformer", binding="tensor"))
        for name, value in (
            ("layer_norm_epsilon", 1e-3),
            ("positions", "none"),
            ("attention", "tpt_keras>DotProductAttention"),
        ):
            model = small_model("tp_transformer", **{name: value})
            with self.assertRaisesRegex(UsageError, f"computes {name} "):
                to_reference(model)

    def test_refuses_what_is_no_transformer(self):
        model = SequenceToSequence.from_preset("lstm", hidden_dim=4)
        with self.assertRaisesRegex(UsageError, "computes no SimpleLSTM"):
            to_reference(model)

    def test_names_weights_without_a_place(self):
        model = small_model("tp_transformer")
        with mock.patch.dict(ENCODER_CELL):
            del ENCODER_CELL["output_layer_norm"]
            with self.assertRaisesRegex(
                UsageError, "no weights for .*encoder_cell_0/output_norm/gamma"
            ):
                to_reference(model)

import pathlib
import tempfile

import keras
import numpy as np
import pytest
from absl.testing import parameterized

from tests.bounded import bounded
from tests.checkpoints.released_vocabulary import CHARACTERS
from tpt_keras.checkpoints import from_reference
from tpt_keras.errors import UsageError

torch = pytest.importorskip(
    "torch", reason="the released checkpoints need tpt_keras[torch]"
)

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
MODELS = ("tp_transformer", "transformer")
PAD, START, END = 1, 2, 3


def golden(name):
    """The checkpoint's path and what the released code computes with it."""
    with np.load(GOLDEN / f"{name}_small_io.npz") as arrays:
        return GOLDEN / f"{name}_small.pt", dict(arrays)


def golden_model(name):
    path, io = golden(name)
    return from_reference(path, num_heads=4), io


def up_to_the_end(rows):
    """Rows of ids as lists, each up to its end symbol, that one included."""
    rows = [row.tolist() for row in rows]
    return [row[: row.index(END) + 1] if END in row else row for row in rows]


class GoldenTest(parameterized.TestCase):
    """Our model computes what the released code computed."""

    @parameterized.parameters(*MODELS)
    def test_logits(self, name):
        model, io = golden_model(name)
        # The released code masks the rows of padding queries as a whole, so
        # only real tokens compare.
        target_inputs = io["trg"][:, :-1]
        logits = model(
            {
                "encoder_token_ids": io["src"],
                "decoder_token_ids": target_inputs,
            }
        )
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(logits)[target_inputs != PAD],
            io["logits"][target_inputs != PAD],
            atol=1e-5,
            rtol=1e-5,
        )

    @parameterized.parameters(*MODELS)
    def test_encoder_output(self, name):
        model, io = golden_model(name)
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(model.encode(io["src"]))[
                io["src"] != PAD
            ],
            io["encoder_output"][io["src"] != PAD],
            atol=1e-5,
            rtol=1e-5,
        )

    @parameterized.parameters(*MODELS)
    def test_cached_logits(self, name):
        model, io = golden_model(name)
        target_inputs = io["trg"][:, :-1]
        cache = model.init_cache(io["src"], max_length=target_inputs.shape[1])
        for index, token_ids in enumerate(target_inputs.T):
            logits, cache = model.decode_step(token_ids, cache, index)
            np.testing.assert_allclose(
                keras.ops.convert_to_numpy(logits)[token_ids != PAD],
                io["logits"][:, index][token_ids != PAD],
                atol=1e-5,
                rtol=1e-5,
            )

    @parameterized.parameters(*MODELS)
    def test_greedy_answers(self, name):
        model, io = golden_model(name)
        expected = up_to_the_end(io["greedy"][:, 1:])
        steps = io["greedy"].shape[1] - 1
        cached = keras.ops.convert_to_numpy(model.generate(io["src"], steps))
        self.assertEqual(up_to_the_end(cached), expected)

        # One length for all steps, which saves compilations; what is behind
        # a token does not change its logits.
        uncached = np.full((len(io["src"]), steps + 1), PAD)
        uncached[:, 0] = START
        for index in range(steps):
            logits = model(
                {
                    "encoder_token_ids": io["src"],
                    "decoder_token_ids": uncached,
                }
            )
            logits = keras.ops.convert_to_numpy(logits)
            uncached[:, index + 1] = logits[:, index].argmax(-1)
        self.assertEqual(up_to_the_end(uncached[:, 1:]), expected)


class FromReferenceTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.dir = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory())
        )

    def changed(self, change, name="tp_transformer"):
        """A golden checkpoint, changed by a function of its weights."""
        checkpoint = torch.load(golden(name)[0], weights_only=True)
        change(checkpoint["model"])
        torch.save(checkpoint, self.dir / "changed.pt")
        return self.dir / "changed.pt"

    def test_infers_the_architecture(self):
        model, _ = golden_model("tp_transformer")
        self.assertEqual(model.config.hidden_dim, 32)
        self.assertEqual(model.config.intermediate_dim, 64)
        self.assertEqual(model.config.num_layers, 2)
        self.assertEqual(model.config.num_heads, 4)
        self.assertEqual(model.config.binding, "hadamard")
        self.assertTrue(model.config.bind_embeddings)
        self.assertEqual(model.config.vocabulary_size, 73)
        self.assertEqual(
            model.config.vocabulary, ("<unknown>", "<pad>", "<start>", "<end>")
        )
        model, _ = golden_model("transformer")
        self.assertEqual(model.config.binding, "none")
        self.assertFalse(model.config.bind_embeddings)

    def test_without_the_embedding_role(self):
        def drop_role(state):
            del state["module.embedding.linear.weight"]
            del state["module.embedding.linear.bias"]

        model = from_reference(self.changed(drop_role), num_heads=4)
        self.assertEqual(model.config.binding, "hadamard")
        self.assertFalse(model.config.bind_embeddings)

    def test_without_data_parallel_and_sinusoids(self):
        def unwrap(state):
            del state["module.embedding.pe"]
            for name in list(state):
                state[name.removeprefix("module.")] = state.pop(name)

        model = from_reference(self.changed(unwrap), num_heads=4)
        expected, _ = golden_model("tp_transformer")
        for weight, other in zip(model.weights, expected.weights):
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(weight),
                keras.ops.convert_to_numpy(other),
            )

    @pytest.mark.slow
    def test_vocabulary_travels_with_the_model(self):
        path, _ = golden("tp_transformer")
        text = self.dir / "vocabulary.txt"
        text.write_text(CHARACTERS + "\n")
        model = from_reference(path, num_heads=4, vocabulary=text)
        self.assertEqual(
            model.tokenizer.encode("0 e"),
            [START, 5, 4, 19, END],
        )
        model.save(self.dir / "model.keras")
        loaded = keras.models.load_model(self.dir / "model.keras")
        self.assertEqual(loaded.config, model.config)
        questions = ["What is 1 + 1?", "Solve 2*x = 4 for x."]
        self.assertEqual(loaded.solve(questions), model.solve(questions))

    def test_names_missing_unknown_and_misshapen_weights(self):
        def spoil(state):
            del state["module.decoder.layers.1.encAttn.W_r.bias"]
            state["module.encoder.layers.0.MHA.W_x.bias"] = torch.zeros(3)
            state["module.encoder.layers.1.layernorm3.bias"] = torch.zeros(31)

        path = self.changed(spoil)
        with self.assertRaisesRegex(
            UsageError,
            r"missing: decoder\.layers\.1\.encAttn\.W_r\.bias; "
            r"unknown: encoder\.layers\.0\.MHA\.W_x\.bias; "
            r"misshapen: encoder\.layers\.1\.layernorm3\.bias "
            r"\(31,\) instead of \(32,\)\.$",
        ):
            from_reference(path, num_heads=4)

    def test_names_only_some_of_many(self):
        def drop_decoder(state):
            for name in [name for name in state if "decoder" in name]:
                del state[name]

        with self.assertRaisesRegex(UsageError, "missing: .* and 59 more"):
            from_reference(self.changed(drop_decoder), num_heads=4)

    @parameterized.parameters(
        ("module.embedding.tok_embedding.weight", "embedding.tok_embedding"),
        (
            "module.encoder.layers.0.densefilter.linear1.weight",
            "densefilter.linear1",
        ),
        ("module.encoder.layers.0.MHA.W_q.weight", "MHA.W_q"),
    )
    def test_names_a_missing_weight_that_tells_the_sizes(self, name, pattern):
        path = self.changed(lambda state: state.pop(name))
        with self.assertRaisesRegex(UsageError, f"lacks the weight.*{pattern}"):
            from_reference(path, num_heads=4)

    def test_refuses_sizes_that_make_no_model(self):
        path, _ = golden("tp_transformer")
        with self.assertRaisesRegex(UsageError, "num_heads must divide"):
            from_reference(path, num_heads=5)
        name = "module.embedding.tok_embedding.weight"
        path = self.changed(lambda state: state.update({name: torch.ones(3)}))
        with self.assertRaisesRegex(UsageError, r"\(3,\), which is no matrix"):
            from_reference(path, num_heads=4)

    def test_a_far_index_makes_no_large_model(self):
        name = "module.encoder.layers.999999999.layernorm1.bias"
        path = self.changed(lambda state: state.update({name: torch.ones(32)}))
        with self.assertRaisesRegex(UsageError, "unknown: .*999999999"):
            from_reference(path, num_heads=4)

    @parameterized.parameters("expanded", "wide", "narrow", "names")
    def test_a_small_file_makes_no_large_model(self, kind):
        """Where tensors or names ask for more than the file holds."""
        ones = torch.ones(1)

        def grow(state):
            embeddings = "module.embedding.tok_embedding.weight"
            filter_ = "module.encoder.layers.0.densefilter.linear1.weight"
            if kind == "expanded":
                state[embeddings] = ones.expand(10**9, 32)
            elif kind == "wide":
                # Ten thousand by ten thousand in every map.
                state[embeddings] = torch.ones(4, 10_000)
                state[filter_] = torch.ones(1, 10_000)
            elif kind == "narrow":
                for name in list(state):
                    del state[name]
                width = torch.ones(8, 8)
                for layer in range(2000):
                    for name in ("MHA.W_q", "densefilter.linear1"):
                        name = f"module.encoder.layers.{layer}.{name}.weight"
                        state[name] = width
                state[embeddings] = width
            else:
                for layer in range(2, 2000):
                    state[f"module.encoder.layers.{layer}.x"] = ones

        path = self.changed(grow)
        self.assertLess(path.stat().st_size, 2**20)
        with (
            bounded(20, 2**26),
            self.assertRaisesRegex(
                UsageError, "make no model|larger than itself"
            ) as raised,
        ):
            from_reference(path, num_heads=4)
        self.assertNotIn("\n", str(raised.exception))
        self.assertLess(len(str(raised.exception)), 2000)

    def test_parameters_are_their_tensors(self):
        def learn(state):
            for name in state:
                state[name] = torch.nn.Parameter(state[name])

        model = from_reference(self.changed(learn), num_heads=4)
        expected, _ = golden_model("tp_transformer")
        for weight, other in zip(model.weights, expected.weights):
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(weight),
                keras.ops.convert_to_numpy(other),
            )

    def test_refuses_the_vocabulary_of_another_model(self):
        path, _ = golden("tp_transformer")
        with self.assertRaisesRegex(UsageError, "has 6 symbols.* has 73"):
            from_reference(
                path,
                num_heads=4,
                vocabulary=["<unk>", "<pad>", "<sos>", "<eos>", "a", "b"],
            )

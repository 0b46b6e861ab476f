import pathlib
import sys

import keras
import numpy as np
import pytest

from tests.refusals import refused
from tpt_keras.checkpoints import from_reference
from tpt_keras.errors import MissingDependencyError
from tpt_keras.errors import UsageError

torch = pytest.importorskip(
    "torch", reason="the released checkpoints need tpt_keras[torch]"
)

pytestmark = pytest.mark.slow_on_jax

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
MODELS = ("tp_transformer", "transformer")
PAD, END = 1, 3
# Of the answers that are decoded: fewer than there are.
STEPS = 8
SYMBOLS = ("<unk>", "<pad>", "<sos>", "<eos>", "a", "b")


def golden_model(name, **arguments):
    path = GOLDEN / f"{name}_small.pt"
    return from_reference(path, **{"num_heads": 4, **arguments})


@pytest.fixture(scope="module", params=MODELS)
def golden(request):
    """A model and what the released code computes with its weights."""
    with np.load(GOLDEN / f"{request.param}_small_io.npz") as arrays:
        return golden_model(request.param), dict(arrays)


def assert_as_released(found, expected, token_ids):
    """Compares at real tokens: the released code masks padding queries."""
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(found)[token_ids != PAD],
        expected[token_ids != PAD],
        atol=2e-6,
        rtol=2e-6,
    )


def up_to_the_end(rows):
    rows = [row.tolist() for row in rows]
    return [row[: row.index(END) + 1] if END in row else row for row in rows]


def test_outputs_are_those_of_the_released_code(golden):
    model, io = golden
    inputs = io["trg"][:, :-1]
    logits = model(
        {"encoder_token_ids": io["src"], "decoder_token_ids": inputs}
    )
    assert_as_released(logits, io["logits"], inputs)
    encoded = model.encode(io["src"])
    assert_as_released(encoded, io["encoder_output"], io["src"])


def test_cached_logits_are_those_of_the_released_code(golden):
    model, io = golden
    inputs = io["trg"][:, :-1]
    cache = model.init_cache(io["src"], max_length=inputs.shape[1])
    for index, token_ids in enumerate(inputs.T):
        logits, cache = model.decode_step(token_ids, cache, index)
        assert_as_released(logits, io["logits"][:, index], token_ids)


def test_greedy_answers_are_those_of_the_released_code(golden):
    model, io = golden
    token_ids = keras.ops.convert_to_numpy(model.generate(io["src"], STEPS))
    expected = io["greedy"][:, 1 : STEPS + 1]
    assert up_to_the_end(token_ids) == up_to_the_end(expected)


def test_the_architecture_is_inferred(golden):
    config = golden[0].config
    assert (config.hidden_dim, config.intermediate_dim) == (32, 64)
    assert (config.num_layers, config.vocabulary_size) == (2, 73)
    assert config.binding in ("hadamard", "none")
    assert config.bind_embeddings == (config.binding == "hadamard")
    assert config.vocabulary == ("<unknown>", "<pad>", "<start>", "<end>")


@pytest.fixture
def changed(tmp_path):
    """Function that changes a golden checkpoint's weights; gives its path."""

    def changed(change):
        path = GOLDEN / "tp_transformer_small.pt"
        checkpoint = torch.load(path, weights_only=True)
        change(checkpoint["model"])
        torch.save(checkpoint, tmp_path / "changed.pt")
        return tmp_path / "changed.pt"

    return changed


def test_role_prefix_and_sinusoids_are_optional(changed):
    def strip(state):
        for name in list(state):
            tensor = state.pop(name)
            if not name.startswith(("module.embedding.pe", ROLE)):
                state[name.removeprefix("module.")] = tensor

    model = from_reference(changed(strip), num_heads=4)
    assert model.config.binding == "hadamard"
    assert not model.config.bind_embeddings
    weights = golden_model("tp_transformer").weights
    expected = [w for w in weights if "/embedding/role/" not in w.path]
    assert len(expected) == len(weights) - 2
    for weight, other in zip(model.weights, expected, strict=True):
        np.testing.assert_array_equal(
            *map(keras.ops.convert_to_numpy, (weight, other))
        )


EMBEDDINGS = "module.embedding.tok_embedding.weight"
FILTER = "module.encoder.layers.0.densefilter.linear1.weight"
QUERY = "module.encoder.layers.0.MHA.W_q.weight"
ROLE = "module.embedding.linear."


def spoil(state):
    del state["module.decoder.layers.1.encAttn.W_r.bias"]
    state["module.encoder.layers.0.MHA.W_x.bias"] = torch.zeros(3)
    state["module.encoder.layers.1.layernorm3.bias"] = torch.zeros(31)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (
            spoil,
            [
                "decoder.layers.1.encAttn.W_r.bias missing",
                "encoder.layers.0.MHA.W_x.bias (3,)",
                "encoder.layers.1.layernorm3.bias (31,) instead of (32,)",
            ],
        ),
        (lambda s: s.pop(EMBEDDINGS), ["tok_embedding"]),
        (lambda s: s.pop(FILTER), ["linear1"]),
        (lambda s: s.pop(QUERY), ["W_q"]),
        (lambda s: s.update({EMBEDDINGS: torch.ones(3)}), ["tok_embedding"]),
    ],
)
def test_weights_of_another_architecture_are_refused(changed, change, parts):
    path = changed(change)
    with pytest.raises(UsageError) as caught:
        from_reference(path, num_heads=4)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"), [("num_heads", 5), ("vocabulary", SYMBOLS)]
)
def test_arguments_of_another_model_are_refused(field, value):
    with pytest.raises(UsageError) as caught:
        golden_model("tp_transformer", **{field: value})
    assert field in (caught.value.field or str(caught.value))


def test_missing_files_and_packages_are_named(monkeypatch):
    with refused(path="nowhere.pt"):
        from_reference("nowhere.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError):
        from_reference("nowhere.pt")

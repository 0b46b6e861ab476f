import pathlib
import sys

import keras
import numpy as np
import pytest

from tpt_keras.checkpoints import from_reference
from tpt_keras.checkpoints import save_reference
from tpt_keras.checkpoints import to_reference
from tpt_keras.errors import MissingDependencyError
from tpt_keras.errors import UsageError
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import Transformer

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
SMALL = {
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "num_heads": 2,
    "num_layers": 2,
}


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


def assert_same_weights(weights, expected):
    for weight, other in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(weight),
            keras.ops.convert_to_numpy(other),
        )


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
    assert_same_weights(model.weights, expected)


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
    with pytest.raises(UsageError) as caught:
        from_reference("nowhere.pt")
    assert caught.value.path == "nowhere.pt"
    monkeypatch.setitem(sys.modules, "torch", None)
    for use in (from_reference, lambda path: save_reference(None, path)):
        with pytest.raises(MissingDependencyError):
            use("nowhere.pt")


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        ("transformer", {}),
        ("tp_transformer_b", {}),
        ("tp_transformer", {"vocabulary_size": 80}),
    ],
)
def test_a_saved_model_is_loaded_unchanged(tmp_path, preset, fields):
    model = Transformer.from_preset(preset, **SMALL, **fields)
    rng = np.random.default_rng(11)
    model.set_weights([rng.normal(size=w.shape) for w in model.weights])
    save_reference(model, tmp_path / "model.pt")
    loaded = from_reference(tmp_path / "model.pt", num_heads=2)
    assert loaded.config == model.config
    assert_same_weights(loaded.weights, model.weights)


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_checkpoint_is_saved_unchanged(tmp_path, name):
    path = tmp_path / "model.pt"
    save_reference(golden_model(name), path)
    # PyTorch 1.1, which runs the released code, reads no zip files.
    assert path.read_bytes()[:1] == b"\x80"
    expected = torch.load(GOLDEN / f"{name}_small.pt", weights_only=True)
    written = torch.load(path, weights_only=True)
    # The keys that the released code reads.
    assert expected.keys() <= written.keys()
    assert written["model"].keys() == expected["model"].keys()
    for key, tensor in expected["model"].items():
        assert written["model"][key].dtype == tensor.dtype
        atol = 2e-5 if key == "module.embedding.pe" else 0.0
        np.testing.assert_allclose(
            written["model"][key], tensor, rtol=0.0, atol=atol
        )
    parameters = [
        torch.nn.Parameter(tensor)
        for key, tensor in written["model"].items()
        if key != "module.embedding.pe"
    ]
    optimizer = torch.optim.Adam(parameters)
    optimizer.load_state_dict(written["optimizer"])
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.995)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binding", "tensor"),
        ("layer_norm_epsilon", 1e-3),
        ("positions", "none"),
        ("attention", "tpt_keras>DotProductAttention"),
        ("attention_options", {"sliding_window": 3}),
        ("digit_places", True),
        ("vocabulary", "mathematics_words"),
    ],
)
def test_models_that_the_released_code_lacks_are_refused(name, value):
    model = Transformer.from_preset(
        "tp_transformer", **{**SMALL, "num_layers": 1, name: value}
    )
    with pytest.raises(UsageError) as caught:
        to_reference(model)
    assert caught.value.field == name


def test_lstms_and_unknown_weights_are_refused():
    lstm = SequenceToSequence.from_preset("lstm", hidden_dim=4)
    with pytest.raises(UsageError):
        to_reference(lstm)
    model = Transformer.from_preset("tp_transformer", **SMALL)
    model.encoder_cells[0].self_attention.query_dense.enable_lora(2)
    with pytest.raises(UsageError) as caught:
        to_reference(model)
    assert "lora" in str(caught.value)

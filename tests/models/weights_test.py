import hypothesis
import keras
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import strategies as st

from tests.refusals import refused
from tpt_keras.errors import UnreadableFileError
from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models import TRAINED_PRESETS
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import Transformer
from tpt_keras.models.stored import load_model
from tpt_keras.models.weights import COMPRESSED_FILE
from tpt_keras.models.weights import CompressedModel
from tpt_keras.models.weights import copy_model

TINY = {"hidden_dim": 8, "intermediate_dim": 6, "num_heads": 2, "num_layers": 1}
QUERY = "encoder_cell_0/self_attention/query/kernel"
OUTPUT = "encoder_cell_0/self_attention/attention_output/kernel"
NORM = "encoder_cell_0/output_norm/gamma"
# Presets whose weights have every form.
QUICK = ("lstm_attention", "tp_transformer_numbers", "tp_transformer_tensor")


def tiny_model():
    return Transformer.from_preset("tp_transformer_tiny", **TINY)


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_copy_has_the_same_weights(dtype):
    model = tiny_model()
    model.compile("adam", "mse")
    other = copy_model(model, dtype)
    assert type(other) is Transformer
    assert (other.name, other.config) == (model.name, model.config)
    assert other.dtype_policy == keras.DTypePolicy(dtype)
    assert not other.compiled
    for new, old in zip(other.weights, model.weights, strict=True):
        assert new is not old
        assert new.dtype == other.variable_dtype
        expected = keras.ops.cast(old, new.dtype)
        np.testing.assert_array_equal(
            *(
                keras.ops.convert_to_numpy(x).astype("float32")
                for x in (new, expected)
            )
        )


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize`")
def test_quantized_models_and_adapters_are_refused():
    quantized, adapted = tiny_model(), tiny_model()
    quantized.quantize("int8")
    adapted.embedding.role_dense.enable_lora(2)
    for model in (quantized, adapted):
        with pytest.raises(UsageError):
            copy_model(model, "bfloat16")
        with pytest.raises(UsageError):
            CompressedModel.of(model)


@pytest.fixture(scope="module")
def compressed():
    return CompressedModel.of(tiny_model())


class File:
    """A compressed model's file and its bytes, with a short repr."""

    def __init__(self, path, compressed):
        self.path = path
        compressed.write(path)
        self.content = path.read_bytes()

    def __repr__(self):
        return "File()"

    def read(self, content):
        self.path.write_bytes(content)
        return CompressedModel.read(self.path)


@pytest.fixture(scope="module")
def file(compressed, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compressed")
    return File(folder / COMPRESSED_FILE, compressed)


@pytest.mark.parametrize(
    "preset",
    [
        pytest.param(preset, marks=() if preset in QUICK else pytest.mark.slow)
        for preset in sorted(PRESETS.keys() - set(TRAINED_PRESETS))
    ],
)
def test_weights_are_kept_to_half_a_step(tmp_path, preset):
    sizes = {"hidden_dim": 4} if "lstm" in preset else {**TINY, "num_layers": 2}
    model = SequenceToSequence.from_preset(preset, **sizes)
    # Zeros would hide that one weight has the values of another.
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    CompressedModel.of(model).write(tmp_path / COMPRESSED_FILE)
    loaded = load_model(tmp_path)
    assert type(loaded) is type(model)
    assert loaded.config == model.config
    for weight, near in zip(model.weights, loaded.weights, strict=True):
        values = keras.ops.convert_to_numpy(weight)
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(near),
            values,
            rtol=0.0,
            atol=np.abs(values).max() / 254 + 1e-7,
        )


def test_weights_of_one_name_are_refused():
    class TwoLayers(Transformer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self._tracker.unlock()
            # Built out of the scope of the model.
            self.added = [keras.layers.Dense(1, name=n) for n in ("a", "b")]
            for layer in self.added:
                layer.build((None, 2))

    model = TwoLayers(tiny_model().config)
    with refused(part="kernel"):
        CompressedModel.of(model)


def test_output_columns_have_scales(compressed):
    def scales(name):
        assert compressed.arrays[name].dtype == "int8"
        return compressed.arrays[f"{name}|scale"].shape

    assert scales("embedding/embeddings") == (1, 8)
    assert scales(QUERY) == (1, 2, 4)
    assert scales(OUTPUT) == (1, 1, 8)
    assert compressed.arrays[NORM].dtype == "float32"
    assert f"{NORM}|scale" not in compressed.arrays


@pytest.mark.parametrize("size", [0.0, 2.7e-43, 1e30])
def test_tiny_and_huge_columns_stay_close(size):
    model = tiny_model()
    kernel = model.embedding.role_dense.kernel
    values = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8) * size
    values[:, 0] = np.linspace(-1, 1, 8)
    kernel.assign(values)
    CompressedModel.of(model).assign_to(model)
    found = keras.ops.convert_to_numpy(kernel)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(
        found / max(size, 1e-30),
        values / max(size, 1e-30),
        rtol=0.01,
        atol=0.01,
    )


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_refused(value):
    model = tiny_model()
    model.embedding.role_dense.bias.assign(np.full(8, value))
    with refused(part="embedding/role/bias"):
        CompressedModel.of(model)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"num_layers": 2}, "missing instead of"),
        ({"binding": "none"}, "role/bias"),
        ({"num_heads": 4}, "(8, 2, 4) instead of (8, 4, 2)"),
    ],
)
def test_another_models_weights_are_refused(compressed, change, part):
    other = Transformer(compressed.config.replace(**change))
    with refused(part=part):
        compressed.assign_to(other)


def test_the_file_is_plain_safetensors(file, compressed):
    arrays = safetensors.numpy.load(file.content)
    assert arrays.keys() == compressed.arrays.keys()
    np.testing.assert_array_equal(arrays[QUERY], compressed.arrays[QUERY])


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:0],
        lambda content: content[:1000],
        lambda content: content[:-1],
        lambda content: safetensors.numpy.save({"a": np.zeros(3)}),
    ],
)
def test_another_file_is_refused(file, damage):
    with refused(path=file.path, error=UnreadableFileError):
        file.read(damage(file.content))


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.data())
def test_flipped_bytes_are_refused_or_change_nothing(file, compressed, data):
    damaged = bytearray(file.content)
    # Half of them in the header, which is the smaller part.
    header = 8 + int.from_bytes(file.content[:8], "little")
    last = data.draw(st.sampled_from([header, len(damaged)])) - 1
    for index in data.draw(
        st.sets(st.integers(0, last), min_size=1, max_size=3)
    ):
        damaged[index] ^= data.draw(st.integers(1, 255))
    try:
        found = file.read(damaged)
    except UnreadableFileError:
        return
    # White space of the header.
    assert found.config == compressed.config
    assert found.arrays.keys() == compressed.arrays.keys()
    for name, values in compressed.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], values)

import io
import json
import zipfile

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from tests.bounded import bounded
from tpt_keras.errors import UsageError
from tpt_keras.language_model import TransformerXL
from tpt_keras.language_model import TransformerXLConfig
from tpt_keras.models import PRESETS
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import Transformer
from tpt_keras.models.compressed_model import COMPRESSED_FILE
from tpt_keras.models.compressed_model import CompressedModel
from tpt_keras.models.load_model import load_model
from tpt_keras.models.stored_config import to_stored

TINY = {
    "hidden_dim": 8,
    "intermediate_dim": 6,
    "num_heads": 2,
    "num_layers": 1,
}
QUERY = "encoder_cell_0/self_attention/query/kernel"
OUTPUT = "encoder_cell_0/self_attention/attention_output/kernel"
NORM = "encoder_cell_0/output_norm/gamma"


@pytest.fixture(scope="module")
def model():
    return Transformer.from_preset("tp_transformer_tiny", **TINY)


@pytest.fixture(scope="module")
def compressed(model):
    return CompressedModel.of(model)


@pytest.fixture(scope="module")
def content(compressed, tmp_path_factory):
    """The bytes of its file."""
    path = tmp_path_factory.mktemp("compressed") / COMPRESSED_FILE
    compressed.write(path)
    assert [other.name for other in path.parent.iterdir()] == [path.name]
    return path.read_bytes()


def assert_close(model, other):
    """Weights are the nearest of 255 values between those of their column."""
    for weight, near in zip(model.weights, other.weights, strict=True):
        values = keras.ops.convert_to_numpy(weight)
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(near),
            values,
            rtol=0.0,
            atol=np.abs(values).max() / 254 + 1e-7,
        )


@pytest.mark.parametrize(
    "preset", ["tp_transformer_discrete", "tp_transformer_multi_linear"]
)
def test_there_and_back(tmp_path, preset):
    model = Transformer.from_preset(preset, **TINY)
    CompressedModel.of(model).write(tmp_path / COMPRESSED_FILE)
    loaded = load_model(tmp_path)
    assert type(loaded) is Transformer
    assert loaded.config == model.config
    assert_close(model, loaded)


def test_a_baseline_there_and_back(tmp_path):
    model = SequenceToSequence.from_preset("lstm", hidden_dim=4)
    CompressedModel.of(model).write(tmp_path / COMPRESSED_FILE)
    loaded = load_model(tmp_path)
    assert type(loaded) is type(model)
    assert_close(model, loaded)


def test_compressed_again_it_is_the_same(compressed):
    model = Transformer(compressed.config)
    compressed.assign_to(model)
    again = CompressedModel.of(model)
    assert again.arrays.keys() == compressed.arrays.keys()
    for name, values in compressed.arrays.items():
        if values.dtype == "int8":
            np.testing.assert_array_equal(again.arrays[name], values)
        else:
            np.testing.assert_allclose(again.arrays[name], values, rtol=1e-6)


def test_a_scale_is_of_an_output_column(compressed):
    def scales(name):
        assert compressed.arrays[name].dtype == "int8"
        return compressed.arrays[f"{name}|scale"].shape

    assert scales("embedding/embeddings") == (1, 8)
    assert scales(QUERY) == (1, 2, 4)
    assert scales(OUTPUT) == (1, 1, 8)
    assert compressed.arrays[NORM].dtype == "float32"
    assert f"{NORM}|scale" not in compressed.arrays


def test_columns_of_other_sizes_and_none():
    model = Transformer.from_preset("tp_transformer_tiny", **TINY)
    kernel = model.embedding.role_dense.kernel
    columns = np.array([1e-30, 0.0, 1e30, 1.0] * 2, "float32")
    values = np.linspace(-1, 1, 64, dtype="float32").reshape(8, 8) * columns
    kernel.assign(values)
    CompressedModel.of(model).assign_to(model)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(kernel) / (columns + (columns == 0)),
        values / (columns + (columns == 0)),
        atol=1 / 254 + 1e-6,
    )


def test_into_a_model_of_another_dtype(model, compressed):
    other = Transformer(model.config, dtype="bfloat16")
    compressed.assign_to(other)
    for weight, near in zip(model.weights, other.weights, strict=True):
        assert near.dtype == other.variable_dtype
        np.testing.assert_allclose(
            *(
                keras.ops.convert_to_numpy(keras.ops.cast(w, "float32"))
                for w in (near, weight)
            ),
            atol=0.02,
        )


def test_a_model_that_was_not_saved_whole_keeps_the_last(
    tmp_path, compressed, content, monkeypatch
):
    path = tmp_path / COMPRESSED_FILE
    path.write_bytes(content)

    def full(file, **arrays):
        file.write(b"PK")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numpy.savez", full)
    with pytest.raises(OSError, match="No space left"):
        compressed.write(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_finite_weight_is_not_compressed():
    model = Transformer.from_preset("tp_transformer_tiny", **TINY)
    bias = model.embedding.role_dense.bias
    bias.assign(np.full(8, np.nan))
    with pytest.raises(UsageError, match=r"embedding/role/bias .*NaN"):
        CompressedModel.of(model)


def test_a_model_with_adapters_is_not_compressed():
    model = Transformer.from_preset("tp_transformer_tiny", **TINY)
    model.embedding.role_dense.enable_lora(2)
    with pytest.raises(UsageError, match="LoRA"):
        CompressedModel.of(model)


def test_weights_of_another_model(compressed):
    other = Transformer(compressed.config.replace(num_layers=2))
    with pytest.raises(UsageError, match=r"missing: decoder_cell_1/.* more"):
        compressed.assign_to(other)
    other = Transformer(compressed.config.replace(binding="none"))
    with pytest.raises(UsageError, match=r"unknown: .*role/bias"):
        compressed.assign_to(other)
    other = Transformer(compressed.config.replace(num_heads=4))
    with pytest.raises(UsageError, match=r"\(8, 2, 4\) instead of \(8, 4, 2\)"):
        compressed.assign_to(other)


def read(content):
    """Reads a file of these bytes, in bounded time and memory."""
    path = read.folder / COMPRESSED_FILE
    path.write_bytes(content)
    with bounded():
        return CompressedModel.read(path)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    read.folder = tmp_path


def assert_refused(content, *parts):
    with pytest.raises(UsageError) as caught:
        read(content)
    for part in (COMPRESSED_FILE, "damaged", *parts):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match=r"no compressed model '.*nothing'"):
        CompressedModel.read(tmp_path / "nothing")


@pytest.mark.parametrize("size", [0, 1, 1000, -1])
def test_a_file_that_is_cut_off(content, size):
    assert_refused(content[:size])


@settings(max_examples=60)
@given(st.data())
def test_flipped_bytes(compressed, content, data):
    """A file is refused, or the damage made no difference."""
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        index = data.draw(st.integers(0, len(content) - 1))
        damaged[index] ^= data.draw(st.integers(1, 255))
    try:
        found = read(damaged)
    except UsageError:
        return
    assert found.config == compressed.config
    assert found.arrays.keys() == compressed.arrays.keys()
    for name, values in compressed.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], values)


def packed(entries, compression=zipfile.ZIP_STORED):
    """An archive of entries that are as they should be, but hostile."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, value in entries.items():
            if not isinstance(value, bytes):
                array = io.BytesIO()
                np.save(array, value)
                value = array.getvalue()
            archive.writestr(f"{name}.npy", value)
    return file.getvalue()


def entries(compressed, config=None, **changes):
    stored = to_stored(compressed.config) if config is None else config
    content = json.dumps(stored).encode()
    return {
        "config": np.frombuffer(content, "uint8"),
        **compressed.arrays,
        **changes,
    }


def test_the_archive_is_what_numpy_writes(compressed, content):
    found = read(packed(entries(compressed)))
    assert found.config == compressed.config
    with np.load(io.BytesIO(content)) as file:
        assert set(file) == {"config", *compressed.arrays}
        np.testing.assert_array_equal(file[QUERY], compressed.arrays[QUERY])


def test_a_bomb(compressed):
    bomb = entries(compressed, bomb=np.zeros(10**7, "float32"))
    assert_refused(packed(bomb, zipfile.ZIP_DEFLATED), "compressed once more")


def test_entries_that_share_their_bytes(content):
    """As many as there is room for, all of the same bytes of the file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.start_dir
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    directory = content[start:]
    at = directory.index(largest.filename.encode()) - 46
    length = 46 + len(largest.filename)
    length += int.from_bytes(directory[at + 30 : at + 32], "little")
    entry = directory[at : at + length]
    end = bytearray(directory[-22:])
    count = 1000
    end[8:10] = end[10:12] = count.to_bytes(2, "little")
    end[12:16] = (count * len(entry)).to_bytes(4, "little")
    assert_refused(content[:start] + count * entry + bytes(end))


@pytest.mark.parametrize("size", [10**9, 10**17, -(10**9)])
def test_a_header_that_promises_much(compressed, size):
    array = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        array, {"descr": "|i1", "fortran_order": False, "shape": (size, 8)}
    )
    assert_refused(packed(entries(compressed, **{QUERY: array.getvalue()})))


@pytest.mark.parametrize(
    ("name", "values", "part"),
    [
        (QUERY, np.array([{}]), "allow_pickle|laid out"),
        (QUERY, np.zeros((8, 2, 4), "float64"), "no weights"),
        (QUERY, np.zeros((8, 2, 4), "U9"), "no weights"),
        (NORM, np.full(8, np.inf, "float32"), NORM),
        (f"{QUERY}|scale", np.full((1, 2, 4), np.nan, "float32"), "scale"),
        (f"{QUERY}|scale", np.ones((3, 2, 4), "float32"), "scales of"),
        (f"{QUERY}|scale", np.ones(4, "float32"), "scales of"),
        (f"{QUERY}|scale", np.ones((1, 2, 4), "int8"), "scale"),
        ("more", np.ones(8, "float32"), "configuration"),
    ],
    ids=str,
)
def test_arrays_that_are_none_of_a_model(compressed, name, values, part):
    changes = {name: values}
    if values.dtype.hasobject:
        array = io.BytesIO()
        np.save(array, values, allow_pickle=True)
        changes = {name: array.getvalue()}
        part = "laid out"
    assert_refused(packed(entries(compressed, **changes)), part)


def test_an_array_is_missing(compressed):
    for name in ("config", QUERY, f"{QUERY}|scale"):
        held = entries(compressed)
        del held[name]
        assert_refused(packed(held))


STORED = to_stored(PRESETS["tp_transformer_tiny"].replace(**TINY))


@pytest.mark.parametrize(
    "config",
    [
        [],
        None,
        {**STORED, "kind": "abacus"},
        {**STORED, "hidden_size": 8},
        {**STORED, "hidden_dim": "8"},
        {**STORED, "hidden_dim": 10**8},
        {**STORED, "num_layers": 10**12},
        {**STORED, "num_layers": 2},
        {
            **STORED,
            "binding": "discrete",
            "binding_options": {"num_roles": 1e9},
        },
        {
            **STORED,
            "binding": "discrete",
            "binding_options": {"num_roles": 10**9},
        },
        {
            **STORED,
            "attention": "relative",
            "attention_options": {"max_distance": 10**9},
        },
    ],
)
def test_configurations_that_are_none_of_it(compressed, config):
    config = STORED if config is None else config
    held = entries(compressed, config)
    if config is STORED:
        held["config"] = np.frombuffer(b"[" * 10**5, "uint8")
    assert_refused(packed(held))


def test_a_vocabulary_that_is_none(tmp_path, compressed):
    config = {**STORED, "vocabulary": ["<pad>"] * 72}
    (tmp_path / COMPRESSED_FILE).write_bytes(
        packed(entries(compressed, config))
    )
    with pytest.raises(UsageError, match="vocabulary"):
        load_model(tmp_path)


def test_a_language_model_is_refused(tmp_path, compressed):
    config = TransformerXLConfig(
        vocabulary=b"abc",
        memory_length=4,
        hidden_dim=8,
        intermediate_dim=6,
        num_heads=2,
        num_layers=1,
    )
    arrays = {"weights": np.zeros(3, "float32")}
    CompressedModel(config, arrays).write(tmp_path / COMPRESSED_FILE)
    with pytest.raises(UsageError):
        load_model(tmp_path)
    compressed.write(tmp_path / COMPRESSED_FILE)
    with pytest.raises(UsageError):
        load_model(tmp_path, classes=(TransformerXL,))

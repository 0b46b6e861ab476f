import shutil

import keras
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import SimpleLSTM
from tpt_keras.models import Transformer
from tpt_keras.models import trained_presets
from tpt_keras.models.compressed_model import COMPRESSED_FILE
from tpt_keras.models.compressed_model import CompressedModel
from tpt_keras.models.load_model import load_model
from tpt_keras.models.trained_presets import TRAINED_PRESETS

[NAME] = TRAINED_PRESETS
# One of a module each: place_value, add_or_sub, sort and differentiate.
PROBLEMS = {
    "What is the tens digit of 31859?": "5",
    "Calculate -5 - 87.": "-92",
    "Sort 3, -2, 15, 0.": "-2, 0, 3, 15",
    "Find the first derivative of 4*x**3 + 9*x - 51 wrt x.": "12*x**2 + 9",
}


@pytest.mark.skipif(
    keras.backend.backend() == "tensorflow",
    reason="that it answers there, the README's own lines show",
)
def test_the_trained_solver_answers():
    model = Transformer.from_preset(NAME, load_weights=True)
    assert model.config == PRESETS["tp_transformer"]
    assert model.solve(list(PROBLEMS)) == list(PROBLEMS.values())


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A small model in the place of the trained one, and its weights."""
    model = Transformer.from_preset(
        "tp_transformer_tiny",
        hidden_dim=8,
        intermediate_dim=6,
        num_heads=2,
        num_layers=1,
    )
    folder = tmp_path / NAME
    folder.mkdir()
    CompressedModel.of(model).write(folder / COMPRESSED_FILE)
    monkeypatch.setattr(
        trained_presets, "_PLACES", (tmp_path / "other", tmp_path)
    )
    return load_model(folder)


def is_same(model, other):
    return model.config == other.config and all(
        keras.ops.convert_to_numpy(keras.ops.all(weight == near))
        for weight, near in zip(model.weights, other.weights, strict=True)
    )


@pytest.mark.parametrize("load_weights", [True, None])
@pytest.mark.parametrize("dtype", [None, "mixed_bfloat16"])
def test_weights_are_loaded(small, load_weights, dtype):
    model = SequenceToSequence.from_preset(
        NAME, load_weights=load_weights, dtype=dtype
    )
    assert type(model) is Transformer
    assert model.dtype_policy.name == (dtype or "float32")
    assert is_same(model, small)


def test_without_weights_it_is_new(small):
    model = Transformer.from_preset(NAME, load_weights=False, num_layers=2)
    assert model.config == small.config.replace(num_layers=2)
    assert not is_same(Transformer.from_preset(NAME, load_weights=False), small)


def test_fields_that_no_weight_depends_on(small):
    model = Transformer.from_preset(NAME, dropout=0.1)
    assert model.config == small.config.replace(dropout=0.1)
    with pytest.raises(UsageError, match="missing: encoder_cell_1"):
        Transformer.from_preset(NAME, num_layers=2)


def test_a_variant_has_no_weights():
    with pytest.raises(UsageError, match=rf"'tp_transformer_tiny'.*{NAME}"):
        Transformer.from_preset("tp_transformer_tiny", load_weights=True)
    Transformer.from_preset(
        "tp_transformer_tiny", load_weights=False, num_layers=1
    )


def test_names_that_are_none(small):
    with pytest.raises(UsageError, match=NAME):
        Transformer.from_preset("tp_transformer_maths")
    with pytest.raises(UsageError, match=r"Transformer\.from_preset"):
        SimpleLSTM.from_preset(NAME)


def test_an_installed_one_comes_first(small, tmp_path):
    shutil.move(tmp_path / NAME, tmp_path / "other" / NAME)
    assert is_same(Transformer.from_preset(NAME), small)


def test_weights_that_are_not_here(small, tmp_path):
    shutil.rmtree(tmp_path / NAME)
    with pytest.raises(UsageError) as caught:
        Transformer.from_preset(NAME)
    for part in (NAME, COMPRESSED_FILE, str(tmp_path), "Install"):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_with_both_is_its_training_s(small, tmp_path):
    other = Transformer(small.config)
    other.save(tmp_path / NAME / "model.keras")
    assert is_same(load_model(tmp_path / NAME), other)


def test_there_is_no_best_of_it(small, tmp_path):
    with pytest.raises(UsageError, match=r"no best model"):
        load_model(tmp_path / NAME, best=True)

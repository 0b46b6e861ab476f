import random

import keras
import pytest

from tests.refusals import refused
from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models import TRAINED_PRESETS
from tpt_keras.models import AttentionalLSTM
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import SimpleLSTM
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig
from tpt_keras.models import count_weights
from tpt_keras.models import stored
from tpt_keras.models.stored import MODEL_FILE
from tpt_keras.models.stored import load_model
from tpt_keras.models.weights import COMPRESSED_FILE
from tpt_keras.models.weights import CompressedModel

# Of the released checkpoints, with their vocabulary of 73 symbols.
RELEASED_COUNTS = {
    "transformer": 44_188_160,
    "tp_transformer": 49_178_624,
    "tp_transformer_b": 43_001_760,
    "tp_transformer_c": 30_023_168,
}
# Of Saxton et al. (2019), with 95 symbols: 18 and 26 million.
LSTM_COUNTS = {"lstm": 17_758_303, "lstm_attention": 26_065_503}
SMALL = {
    "hidden_dim": 12,
    "intermediate_dim": 20,
    "num_heads": 3,
    "num_layers": 1,
}
[TRAINED] = TRAINED_PRESETS
# One of a module each: place_value, add_or_sub, sort and differentiate.
PROBLEMS = {
    "What is the tens digit of 31859?": "5",
    "Calculate -5 - 87.": "-92",
    "Sort 3, -2, 15, 0.": "-2, 0, 3, 15",
    "Find the first derivative of 4*x**3 + 9*x - 51 wrt x.": "12*x**2 + 9",
}


@pytest.mark.parametrize("preset", [*RELEASED_COUNTS, *LSTM_COUNTS])
def test_presets_have_the_published_numbers_of_weights(preset):
    counts, size = RELEASED_COUNTS, 73
    if preset in LSTM_COUNTS:
        counts, size = LSTM_COUNTS, 95
    config = PRESETS[preset].replace(vocabulary_size=size)
    assert count_weights(config) == counts[preset]


def test_count_weights_equals_count_params():
    config = TransformerConfig(
        **{**SMALL, "num_layers": 3},
        num_decoder_layers=1,
        attention="multi_linear",
        binding="discrete",
    )
    assert Transformer(config).count_params() == count_weights(config)


def test_counting_leaves_no_trace():
    # The maps of this model would take 720 TB.
    config = PRESETS["tp_transformer_multi_linear"].replace(
        attention_options={"max_length": 10**5}
    )
    random_state = random.getstate()
    without = count_weights(
        config.replace(attention="dot_product", attention_options={})
    )
    cores_and_map = 8 * (64 + 10**10 * 64)
    assert count_weights(config) == without + 18 * cores_and_map
    assert random.getstate() == random_state
    # Keras gives values to all variables that are without.
    with keras.StatelessScope():
        pass


@pytest.mark.parametrize(
    ("model_class", "preset"),
    [
        (Transformer, "lstm"),
        (SimpleLSTM, "lstm_attention"),
        (AttentionalLSTM, "tp_transformer_tiny"),
    ],
)
def test_a_class_makes_its_own_presets_alone(model_class, preset):
    with pytest.raises(UsageError):
        model_class.from_preset(preset)
    with pytest.raises(UsageError):
        model_class(PRESETS[preset])


@pytest.mark.parametrize(
    ("preset", "overrides", "named"),
    [
        ("tp_transformer_d", {}, "tp_transformer_b"),
        ("transformer", {"depth": 2}, "num_layers"),
        ("tp_transformer_tiny", {"num_layers": "3"}, "num_layers"),
        (
            "tp_transformer_tiny",
            {"vocabulary": ("<pad>", "<start>", "<end>", "ab")},
            "'ab'",
        ),
        ("tp_transformer_tiny", {"load_weights": True}, TRAINED),
    ],
)
def test_from_preset_refuses(preset, overrides, named):
    with refused(part=named):
        Transformer.from_preset(preset, **overrides)


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() == "tensorflow",
    reason="The README's own lines show it there.",
)
def test_trained_solver_answers():
    model = Transformer.from_preset(TRAINED)
    assert model.config == PRESETS[TRAINED]
    assert model.solve(list(PROBLEMS)) == list(PROBLEMS.values())


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A small model in the place of the trained one."""
    model = Transformer.from_preset("tp_transformer_tiny", **SMALL)
    folder = tmp_path / TRAINED
    folder.mkdir()
    CompressedModel.of(model).write(folder / COMPRESSED_FILE)
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(stored, "ROOTS", (tmp_path,))
    return load_model(folder)


def is_same(model, other):
    return model.config == other.config and all(
        keras.ops.convert_to_numpy(keras.ops.all(weight == near))
        for weight, near in zip(model.weights, other.weights, strict=True)
    )


@pytest.mark.parametrize(
    ("load_weights", "dtype"), [(True, None), (None, "mixed_bfloat16")]
)
def test_trained_presets_load_their_weights(small, load_weights, dtype):
    model = SequenceToSequence.from_preset(
        TRAINED, load_weights=load_weights, dtype=dtype
    )
    assert type(model) is Transformer
    assert model.dtype_policy.name == (dtype or "float32")
    assert is_same(model, small)


def test_without_weights_a_trained_preset_is_new(small):
    model = Transformer.from_preset(TRAINED, load_weights=False, **SMALL)
    assert model.config == PRESETS[TRAINED].replace(**SMALL)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_layers", 3),
        ("vocabulary", ("<pad>", "<start>", "<end>", "a")),
        ("attention", "relative"),
    ],
)
def test_other_fields_of_a_trained_preset_may_not_change(small, field, value):
    with pytest.raises(UsageError) as error:
        Transformer.from_preset(TRAINED, **{field: value})
    assert error.value.field == field
    assert len(str(error.value)) < 400


WAYS_TO_SAVE = {
    "training": lambda model, folder: model.save(folder / MODEL_FILE),
    "compressed": lambda model, folder: CompressedModel.of(model).write(
        folder / COMPRESSED_FILE
    ),
    "keras": lambda model, folder: model.save(folder, zipped=False),
}


@pytest.fixture(params=WAYS_TO_SAVE)
def saved(request, small, tmp_path):
    """A folder of the small model, with what may lie beside its files."""
    folder = tmp_path / "saved"
    folder.mkdir()
    for name in (".gitattributes", "README.md"):
        (folder / name).touch()
    WAYS_TO_SAVE[request.param](small, folder)
    return folder


def test_from_preset_takes_a_folder(small, saved):
    assert is_same(Transformer.from_preset(saved), small)
    assert is_same(load_model(str(saved)), small)


def test_a_folder_with_other_fields_and_dtype(small, saved):
    values = {"dropout": 0.1, "max_answer_length": 5, "num_layers": 1}
    model = SequenceToSequence.from_preset(
        saved, dtype="mixed_bfloat16", **values
    )
    assert model.dtype_policy.name == "mixed_bfloat16"
    assert model.config == small.config.replace(**values)


def test_other_fields_of_a_folder_need_new_weights(small, tmp_path):
    model = Transformer.from_preset(
        tmp_path / TRAINED, load_weights=False, num_layers=2
    )
    assert model.config == small.config.replace(num_layers=2)


def test_a_subclass_loads_itself(small, saved):
    class Own(Transformer):
        pass

    model = Own.from_preset(saved)
    assert type(model) is Own
    assert is_same(model, small)


def test_a_finished_training_comes_before_its_compressed_model(small, tmp_path):
    other = Transformer(small.config)
    other.save(tmp_path / TRAINED / "model.keras")
    assert is_same(load_model(tmp_path / TRAINED), other)


def test_a_compressed_model_is_no_best_model(small, tmp_path):
    with pytest.raises(UsageError):
        load_model(tmp_path / TRAINED, best=True)

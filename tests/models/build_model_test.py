import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models import AttentionalLSTM
from tpt_keras.models import SequenceToSequence
from tpt_keras.models import SimpleLSTM
from tpt_keras.models import Transformer
from tpt_keras.models import build_model
from tpt_keras.models.build_model import model_class


def test_every_preset_has_a_class():
    found = {preset: model_class(config) for preset, config in PRESETS.items()}
    assert found.pop("lstm") is SimpleLSTM
    assert found.pop("lstm_attention") is AttentionalLSTM
    assert set(found.values()) == {Transformer}


def test_a_model_is_built_of_its_configuration():
    config = PRESETS["lstm"].replace(hidden_dim=4)
    model = build_model(config, "mixed_bfloat16")
    assert type(model) is SimpleLSTM
    assert model.config == config
    assert model.dtype_policy.name == "mixed_bfloat16"


@pytest.mark.parametrize(
    ("model", "preset", "right"),
    [
        (Transformer, "lstm", "SimpleLSTM"),
        (SimpleLSTM, "lstm_attention", "AttentionalLSTM"),
        (AttentionalLSTM, "tp_transformer_tiny", "Transformer"),
    ],
)
def test_a_class_makes_no_other(model, preset, right):
    with pytest.raises(UsageError, match=rf"{right}\.from_preset"):
        model.from_preset(preset)
    with pytest.raises(UsageError, match=f"No {model.__name__} can be made"):
        model(PRESETS[preset])


def test_the_base_class_alone_is_no_model():
    with pytest.raises(UsageError, match="build_model"):
        SequenceToSequence(PRESETS["lstm"])


def test_a_subclass_of_ones_own_makes_itself():
    class Own(SimpleLSTM):
        pass

    assert type(Own.from_preset("lstm", hidden_dim=4)) is Own

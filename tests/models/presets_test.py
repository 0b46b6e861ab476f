import keras
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.layers import BINDINGS
from tpt_keras.layers import MECHANISMS
from tpt_keras.models import PRESETS
from tpt_keras.models import LSTMConfig
from tpt_keras.models import SimpleLSTM
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig
from tpt_keras.models import build_model
from tpt_keras.models.count_weights import count_weights
from tpt_keras.models.model_config import ModelConfig

# What the released checkpoints hold, at their vocabulary of 73 symbols.
RELEASED_COUNTS = {
    "transformer": 44_188_160,
    "tp_transformer": 49_178_624,
    "tp_transformer_b": 43_001_760,
    "tp_transformer_c": 30_023_168,
}


def test_relative_positions_have_a_table_of_distances_in_each_attention():
    config = PRESETS["transformer"].replace(positions="none")
    relative = config.replace(attention="relative")
    attentions = 2 * config.num_layers  # not those to the encoder's output
    assert count_weights(relative) - count_weights(config) == (
        attentions * 2 * (2 * 16 + 1) * 64
    )


@pytest.mark.slow
@pytest.mark.parametrize("preset", RELEASED_COUNTS)
def test_a_model_holds_as_many_weights_as_the_released(preset):
    model = Transformer.from_preset(preset, vocabulary_size=73)
    assert model.count_params() == RELEASED_COUNTS[preset]


@pytest.mark.parametrize("preset", RELEASED_COUNTS)
def test_the_formula_gives_the_released_counts(preset):
    config = PRESETS[preset].replace(vocabulary_size=73)
    assert count_weights(config) == RELEASED_COUNTS[preset]


@pytest.mark.parametrize(
    "choices",
    [
        {"bind_embeddings": True},
        *({"binding": binding} for binding in BINDINGS),
        *({"attention": score, "positions": "none"} for score in MECHANISMS),
        {"binding": "tensor", "binding_options": {"rank": 3}},
        {"binding": "discrete", "binding_options": {"num_roles": 7}},
        {"attention": "relative", "attention_options": {"max_distance": 2}},
    ],
    ids=str,
)
def test_small_models_follow_the_formula(choices):
    config = TransformerConfig(
        hidden_dim=12,
        intermediate_dim=20,
        num_heads=3,
        num_layers=2,
        **{"bind_embeddings": False, **choices},
    )
    model = Transformer(config)
    assert model.count_params() == count_weights(config)
    assert len(model.trainable_weights) == len(model.weights)


def test_counting_makes_no_weights():
    # The maps of this one would take 720 TB.
    config = PRESETS["tp_transformer_multi_linear"]
    options = {"max_length": 10**5}
    without = config.replace(attention="dot_product")
    cores_and_map = 8 * (64 + 10**10 * 64)
    assert count_weights(config.replace(attention_options=options)) == (
        count_weights(without) + 18 * cores_and_map
    )


def test_the_baselines_are_of_the_size_of_saxton_et_al():
    """Whose vocabulary has 95 symbols: 18 and 26 million weights."""
    counts = {
        name: count_weights(PRESETS[name].replace(vocabulary_size=95))
        for name in ("lstm", "lstm_attention")
    }
    assert counts == {"lstm": 17_758_303, "lstm_attention": 26_065_503}


@pytest.mark.slow
def test_the_simple_lstm_has_the_weights_of_saxton_et_al():
    model = SimpleLSTM.from_preset("lstm", vocabulary_size=95)
    assert model.count_params() == 17_758_303


@pytest.mark.parametrize("attention", ["none", "additive"])
def test_small_lstms_follow_the_formula(attention):
    config = LSTMConfig(
        hidden_dim=6, attention=attention, encoder_dim=4, attention_dim=3
    )
    model = build_model(config)
    assert model.count_params() == count_weights(config)
    assert len(model.trainable_weights) == len(model.weights)


def test_every_preset_is_a_valid_row():
    assert set(RELEASED_COUNTS) < set(PRESETS)
    for config in PRESETS.values():
        assert isinstance(config, ModelConfig)
        assert config.vocabulary_size == 72


def test_from_preset_takes_overrides_and_a_dtype():
    model = Transformer.from_preset(
        "tp_transformer_tiny",
        dtype="mixed_bfloat16",
        hidden_dim=8,
        num_heads=2,
        num_layers=1,
    )
    config = PRESETS["tp_transformer_tiny"]
    assert model.config == config.replace(
        hidden_dim=8, num_heads=2, num_layers=1
    )
    assert model.dtype_policy == keras.DTypePolicy("mixed_bfloat16")


def test_unknown_names_list_the_known_ones():
    with pytest.raises(UsageError) as error:
        Transformer.from_preset("tp_transformer_d")
    for preset in PRESETS:
        assert preset in str(error.value)
    with pytest.raises(UsageError, match=r"hyperparameter 'depth'.*num_layers"):
        Transformer.from_preset("transformer", depth=2)


def test_a_value_of_a_wrong_type_is_named():
    with pytest.raises(UsageError, match=r"num_layers.* int\..*'3' .*type str"):
        Transformer.from_preset("tp_transformer_tiny", num_layers="3")


@pytest.mark.parametrize("config", ["tp_transformer_tiny", None, {}])
def test_a_model_is_not_made_of_a_name(config):
    with pytest.raises(UsageError, match=r"Transformer\.from_preset") as error:
        Transformer(config)
    assert repr(config) in str(error.value)


def test_a_model_is_not_made_of_a_bad_vocabulary():
    with pytest.raises(UsageError, match=r"'ab'.* one character"):
        Transformer.from_preset(
            "tp_transformer_tiny",
            vocabulary=("<pad>", "<start>", "<end>", "ab"),
        )

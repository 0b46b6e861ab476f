import dataclasses
import json
import random

import numpy as np
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models import LSTMConfig
from tpt_keras.models import TransformerConfig
from tpt_keras.models.configs import from_stored
from tpt_keras.models.configs import to_stored
from tpt_keras.tokenizers.vocabulary import MATHEMATICS_VOCABULARY

VOCABULARY = ("<pad>", "<start>", "<end>", "a", "b")


def test_defaults_are_the_papers():
    config = TransformerConfig()
    assert config.hidden_dim == 512
    assert config.intermediate_dim == 2048
    assert config.num_heads == 8
    assert config.num_layers == 6
    assert config.binding == "hadamard"
    assert config.bind_embeddings
    assert config.dropout == 0.0
    assert config.vocabulary == MATHEMATICS_VOCABULARY
    assert config.vocabulary_size == 72
    assert (config.max_question_length, config.max_answer_length) == (160, 30)


def test_configurations_are_frozen_and_comparable():
    config = TransformerConfig(vocabulary=list(VOCABULARY))
    assert config.vocabulary == VOCABULARY
    assert config == TransformerConfig(**dataclasses.asdict(config))
    assert hash(config) == hash(TransformerConfig(vocabulary=VOCABULARY))
    assert config != TransformerConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.dropout = 0.5


@pytest.mark.parametrize(
    ("config_class", "values", "field"),
    [
        (TransformerConfig, {"binding": "tpr"}, None),
        (TransformerConfig, {"initialization": "x"}, "initialization"),
        (TransformerConfig, {"positions": "learned"}, "positions"),
        (TransformerConfig, {"num_heads": 7}, "num_heads"),
        (TransformerConfig, {"dropout": 1.0}, "dropout"),
        (TransformerConfig, {"dropout": -0.1}, "dropout"),
        (TransformerConfig, {"vocabulary_size": 71}, "vocabulary_size"),
        (TransformerConfig, {"attention_options": {"rank": 2}}, None),
        (TransformerConfig, {"binding_options": {"rank": 2}}, None),
        (
            TransformerConfig,
            {"attention": "relative", "attention_options": {"max_distance": 0}},
            None,
        ),
        (
            TransformerConfig,
            {"attention_options": [("rank", 2)]},
            "attention_options",
        ),
        (
            TransformerConfig,
            {"attention": "multi_linear", "max_question_length": 161},
            "attention_options",
        ),
        (
            TransformerConfig,
            {
                "attention": "multi_linear",
                "attention_options": {"max_length": 40},
                "max_question_length": 38,
                "max_answer_length": 40,
            },
            "attention_options",
        ),
        (LSTMConfig, {"attention": "dot_product"}, "attention"),
        (LSTMConfig, {"thinking_steps": -1}, "thinking_steps"),
        (LSTMConfig, {"attention_dim": "8"}, "attention_dim"),
        *(
            (config_class, {name: 0}, name)
            for config_class in (TransformerConfig, LSTMConfig)
            for name in config_class.SIZES
            if name != "vocabulary_size"
        ),
    ],
)
def test_refuses_invalid_values(config_class, values, field):
    for make in (config_class, config_class().replace):
        with pytest.raises(UsageError) as error:
            make(**values)
        if field:
            assert error.value.field == field


@pytest.mark.parametrize("kind", [bool, int, float, str, tuple])
@pytest.mark.parametrize("value", [True, 2, 0.5, "3", None, ["b"]], ids=repr)
def test_refuses_values_of_wrong_types(kind, value):
    accepted = {
        bool: (bool,),
        int: (int,),
        float: (int, float),
        str: (str,),
        tuple: (list, str),
    }[kind]
    names = [
        field.name
        for field in dataclasses.fields(TransformerConfig)
        if field.type is kind
    ]
    assert names
    for name in names:
        try:
            TransformerConfig().replace(**{name: value})
        except UsageError as error:
            is_type_error = "of type" in str(error)
            assert is_type_error == (type(value) not in accepted)
        else:
            assert type(value) in accepted


def test_values_are_converted_to_the_types_of_their_fields():
    config = TransformerConfig(dropout=0, num_layers=np.int64(3))
    assert type(config.dropout) is float
    assert type(config.num_layers) is int
    assert config == TransformerConfig(num_layers=3)


def test_replacing_the_vocabulary_changes_its_size():
    config = TransformerConfig()
    assert config.replace(vocabulary=VOCABULARY).vocabulary_size == 5
    other = config.replace(vocabulary=VOCABULARY, vocabulary_size=7)
    assert other.vocabulary_size == 7
    other = other.replace(num_layers=1)
    assert (other.vocabulary, other.vocabulary_size) == (VOCABULARY, 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (
            " hidden_dim = 64 ,dropout=0.1,binding=none,",
            {"hidden_dim": 64, "dropout": 0.1, "binding": "none"},
        ),
        ("bind_embeddings=false", {"bind_embeddings": False}),
        ("bind_embeddings=True", {"bind_embeddings": True}),
        ("layer_norm_epsilon=1e-6", {"layer_norm_epsilon": 1e-6}),
        ("dropout=0", {"dropout": 0.0}),
    ],
)
def test_parse_overrides(text, expected):
    overrides = TransformerConfig().parse_overrides(text)
    assert overrides == expected
    for name, value in expected.items():
        assert type(overrides[name]) is type(value)
    TransformerConfig().replace(**overrides)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("layers=2", "hyperparameter"),
        ("vocabulary=abc", "hyperparameter"),
        ("num_layers=two", "num_layers"),
        ("num_layers=2.5", "num_layers"),
        ("num_layers", "num_layers"),
        ("num_layers.x=2", "num_layers"),
        ("attention_options=2", "attention_options"),
        ("dropout=much", "dropout"),
        ("bind_embeddings=1", "bind_embeddings"),
    ],
)
def test_parse_overrides_refuses(text, field):
    with pytest.raises(UsageError) as error:
        TransformerConfig().parse_overrides(text)
    assert error.value.field == field


def test_options_are_parsed_and_kept():
    config = TransformerConfig().replace(
        **TransformerConfig().parse_overrides(
            "attention=relative, attention_options.max_distance=8,"
            "binding=tensor,binding_options.rank=4"
        )
    )
    assert config.attention_options == {"max_distance": 8}
    assert config.binding_options == {"rank": 4}
    overrides = config.parse_overrides("attention_options.sliding_window=5")
    assert overrides["attention_options"] == {
        "max_distance": 8,
        "sliding_window": 5,
    }
    assert config == TransformerConfig(**dataclasses.asdict(config))
    assert hash(config) == hash(config.replace(binding_options={}))
    assert config != config.replace(binding_options={})


def test_making_a_configuration_draws_no_random_number():
    before = random.getstate()
    TransformerConfig()
    assert random.getstate() == before


def test_resized_lstm_is_in_proportion():
    config = LSTMConfig(attention="additive", thinking_steps=4)
    assert config.resized(128, 3, num_layers=2, num_heads=4) == config.replace(
        hidden_dim=131, encoder_dim=32, attention_dim=32
    )
    assert config.resized(1, 0).encoder_dim == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_stored_configurations_are_read_back(preset):
    stored = json.loads(json.dumps(to_stored(PRESETS[preset])))
    assert from_stored(stored) == PRESETS[preset]
    assert stored["kind"] == ("lstm" if "lstm" in preset else "transformer")


@pytest.mark.parametrize("stored", [{"kind": "mlp"}, {}])
def test_refuses_stored_configurations_of_unknown_kinds(stored):
    with pytest.raises(UsageError):
        from_stored(stored)

import dataclasses
import random

import numpy as np
import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import TransformerConfig
from tpt_keras.tokenizers.vocabulary import MATHEMATICS_VOCABULARY

VOCABULARY = ("<pad>", "<start>", "<end>", "a", "b")


def test_the_defaults_are_the_papers():
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


def test_is_frozen_and_comparable():
    config = TransformerConfig(vocabulary=list(VOCABULARY))
    assert config.vocabulary == VOCABULARY
    assert config == TransformerConfig(**dataclasses.asdict(config))
    assert hash(config) == hash(TransformerConfig(vocabulary=VOCABULARY))
    assert config != TransformerConfig()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.dropout = 0.5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"binding": "tpr"}, "binding"),
        ({"initialization": "x"}, "initialization 'x'.*paper, released"),
        ({"num_heads": 7}, "num_heads=7, hidden_dim=512"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\).*1.0"),
        ({"dropout": -0.1}, "dropout"),
        ({"vocabulary_size": 71}, "at least the vocabulary's 72.*71"),
        *(
            ({name: value}, f"{name} must be positive")
            for name in (
                "hidden_dim",
                "intermediate_dim",
                "num_heads",
                "num_layers",
                "max_question_length",
                "max_answer_length",
            )
            for value in (0, -1)
        ),
    ],
)
def test_values_that_make_no_sense(values, message):
    with pytest.raises(UsageError, match=message):
        TransformerConfig(**values)
    with pytest.raises(UsageError, match=message):
        TransformerConfig().replace(**values)


@pytest.mark.parametrize("kind", [bool, int, float, str, tuple])
@pytest.mark.parametrize(
    "value", [True, 2, 0.5, 2.0, "3", None, ("a",), ["b"], 1j], ids=repr
)
def test_values_of_a_wrong_type(kind, value):
    taken = {
        bool: (bool,),
        int: (int,),
        float: (int, float),
        str: (str,),
        tuple: (tuple, list, str),
    }[kind]
    names = [
        field.name
        for field in dataclasses.fields(TransformerConfig)
        if field.type is kind
    ]
    assert names
    for name in names:
        message = ""
        try:
            TransformerConfig().replace(**{name: value})
        except UsageError as error:
            message = str(error)
        expected = (
            f"`{name}` takes a value of type {kind.__name__}. Received: "
            f"{value!r} (of type {type(value).__name__})."
        )
        # What is of the right type may yet make no sense.
        assert (message == expected) == (type(value) not in taken)


def test_values_are_of_their_fields_types():
    config = TransformerConfig(dropout=0, num_layers=np.int64(3))
    assert type(config.dropout) is float
    assert type(config.num_layers) is int
    assert config == TransformerConfig(num_layers=3)


def test_vocabulary_size_may_be_larger():
    config = TransformerConfig(vocabulary=VOCABULARY, vocabulary_size=9)
    assert config.vocabulary_size == 9


def test_replace():
    config = TransformerConfig(dropout=0.1)
    other = config.replace(num_layers=2, binding="none")
    assert (other.num_layers, other.binding, other.dropout) == (2, "none", 0.1)
    assert config.num_layers == 6


def test_replacing_the_vocabulary_changes_its_size():
    config = TransformerConfig()
    assert config.replace(vocabulary=VOCABULARY).vocabulary_size == 5
    other = config.replace(vocabulary=VOCABULARY, vocabulary_size=7)
    assert other.vocabulary_size == 7
    # But nothing else does.
    other = other.replace(num_layers=1)
    assert (other.vocabulary, other.vocabulary_size) == (VOCABULARY, 7)


def test_replace_lists_the_known_names():
    with pytest.raises(
        UsageError, match=r"hyperparameter 'layers'.*dropout.*num_layers"
    ):
        TransformerConfig().replace(layers=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("num_layers=2", {"num_layers": 2}),
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
    ("text", "message"),
    [
        ("layers=2", "hyperparameter 'layers'.*num_layers"),
        ("vocabulary=abc", "hyperparameter 'vocabulary'.*num_layers"),
        ("num_layers=two", "num_layers takes a value of type int.*'two'"),
        ("num_layers=2.5", "num_layers takes a value of type int.*'2.5'"),
        ("num_layers", "num_layers takes a value of type int.*''"),
        ("num_layers.x=2", "num_layers has no options.*'num_layers.x=2'"),
        ("attention_options=2", "attention_options has options.*dis"),
        ("dropout=much", "dropout takes a value of type float.*'much'"),
        ("bind_embeddings=1", "bind_embeddings takes .* bool.*'1'"),
    ],
)
def test_overrides_that_make_no_sense(text, message):
    with pytest.raises(UsageError, match=message):
        TransformerConfig().parse_overrides(text)


def test_options_of_a_choice():
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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attention_options": {"rank": 2}}, "attention_options"),
        ({"binding_options": {"rank": 2}}, "binding_options"),
        (
            {"attention": "relative", "attention_options": {"max_distance": 0}},
            "attention_options",
        ),
        ({"attention_options": [("rank", 2)]}, "type dict.*list"),
        (
            {"attention": "multi_linear", "max_question_length": 161},
            "max_question_length of 161 .*max_length of at least 163.*162",
        ),
        (
            {
                "attention": "multi_linear",
                "attention_options": {"max_length": 40},
                "max_question_length": 38,
                "max_answer_length": 40,
            },
            "max_answer_length of 40 .* at least 41.*40",
        ),
    ],
)
def test_options_that_make_no_sense(values, message):
    with pytest.raises(UsageError, match=message):
        TransformerConfig(**values)


def test_a_configuration_draws_no_random_number():
    """The same seed before or after it gives a model the same weights."""
    before = random.getstate()
    TransformerConfig()
    assert random.getstate() == before

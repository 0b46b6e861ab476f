import json

import pytest

from tests.refusals import refused
from tpt_keras.errors import UsageError
from tpt_keras.models import PRESETS
from tpt_keras.models import LSTMConfig
from tpt_keras.models import TransformerConfig
from tpt_keras.models.configs import from_stored
from tpt_keras.models.configs import to_stored
from tpt_keras.tokenizers.character_tokenizer import VOCABULARIES

VOCABULARY = ("<pad>", "<start>", "<end>", "a", "b")


SHORT = {"attention": "multi_linear", "attention_options": {"max_length": 40}}


def check_refusal(config_class, values, field):
    for make in (config_class, config_class().replace):
        with refused(field):
            make(**values)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"binding": "tpr"}, "binding"),
        ({"initialization": "x"}, "initialization"),
        ({"positions": "learned"}, "positions"),
        ({"positions": "rotary", "attention": "relative"}, "positions"),
        ({"positions": "rotary", "attention": "multi_linear"}, "positions"),
        ({"num_heads": 7}, "num_heads"),
        ({"num_heads": 1, "attention": "relational"}, "num_heads"),
        ({"num_layers": 0}, "num_layers"),
        ({"max_answer_length": 0}, "max_answer_length"),
        ({"dropout": 1.0}, "dropout"),
        ({"vocabulary_size": 71}, "vocabulary_size"),
        ({"attention_options": {"rank": 2}}, "attention_options"),
        ({"binding_options": {"rank": 2}}, "binding_options"),
        ({"attention_options": [1]}, "attention_options"),
        ({**SHORT, "max_question_length": 39}, "attention_options"),
        (
            {**SHORT, "max_question_length": 38, "max_answer_length": 40},
            "attention_options",
        ),
    ],
)
def test_a_transformer_refuses(values, field):
    check_refusal(TransformerConfig, values, field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attention", "dot_product"),
        ("thinking_steps", -1),
        ("attention_dim", "8"),
        ("encoder_dim", 0),
    ],
)
def test_an_lstm_refuses(field, value):
    check_refusal(LSTMConfig, {field: value}, field)


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
            " hidden_dim = 64 ,dropout=0,layer_norm_epsilon=1e-6,binding=none,",
            {
                "hidden_dim": 64,
                "dropout": 0.0,
                "layer_norm_epsilon": 1e-6,
                "binding": "none",
            },
        ),
        ("bind_embeddings=False", {"bind_embeddings": False}),
        (
            "vocabulary=mathematics_words",
            {"vocabulary": VOCABULARIES["mathematics_words"]},
        ),
        (
            "attention=relative, attention_options.max_distance=8,"
            "attention_options.sliding_window=5",
            {
                "attention": "relative",
                "attention_options": {"max_distance": 8, "sliding_window": 5},
            },
        ),
    ],
)
def test_overrides_are_parsed(text, expected):
    config = TransformerConfig()
    overrides = config.parse_overrides(text)
    changed = config.replace(**overrides)
    assert overrides.keys() == expected.keys()
    assert changed == config.replace(**expected)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("layers=2", "hparams"),
        ("vocabulary=abc", "vocabulary"),
        ("num_layers=two", "hparams"),
        ("num_layers=2.5", "hparams"),
        ("num_layers", "hparams"),
        ("num_layers=2,num_layers=3", "hparams"),
        ("num_layers.x=2", "hparams"),
        ("attention_options=2", "hparams"),
        ("bind_embeddings=1", "hparams"),
    ],
)
def test_wrong_overrides_are_refused(text, field):
    config = TransformerConfig()
    with refused(field):
        config.replace(**config.parse_overrides(text))


def test_options_are_changed_one_by_one():
    config = TransformerConfig(
        attention="relative", attention_options={"max_distance": 8}
    )
    overrides = config.parse_overrides("attention_options.sliding_window=5")
    assert overrides["attention_options"] == {
        "max_distance": 8,
        "sliding_window": 5,
    }


@pytest.mark.parametrize("preset", PRESETS)
def test_stored_configurations_are_read_back(preset):
    stored = json.loads(json.dumps(to_stored(PRESETS[preset])))
    assert from_stored(stored) == PRESETS[preset]
    assert stored["kind"] == ("lstm" if "lstm" in preset else "transformer")


@pytest.mark.parametrize("stored", [{"kind": "mlp"}, {}])
def test_stored_configurations_of_unknown_kinds_are_refused(stored):
    with pytest.raises(UsageError):
        from_stored(stored)

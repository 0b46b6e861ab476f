import pytest

from tpt_keras.errors import UsageError
from tpt_keras.models import LSTMConfig


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attention": "dot_product"}, "Unknown attention 'dot_product'"),
        ({"thinking_steps": -1}, "thinking_steps must not be negative"),
        ({"hidden_dim": 0}, "hidden_dim must be positive"),
        ({"encoder_dim": 0}, "encoder_dim must be positive"),
        ({"attention_dim": "8"}, "attention_dim.? takes a value of type int"),
        ({"dropout": 1.0}, "dropout must be in"),
    ],
)
def test_what_makes_no_sense(values, message):
    with pytest.raises(UsageError, match=message):
        LSTMConfig(**values)


def test_overrides():
    config = LSTMConfig()
    overrides = config.parse_overrides("hidden_dim=8,attention=additive")
    assert config.replace(**overrides) == LSTMConfig(
        hidden_dim=8, attention="additive"
    )
    with pytest.raises(UsageError, match="hyperparameter 'num_layers'"):
        config.replace(num_layers=2)


def test_at_another_size_the_parts_are_in_proportion():
    config = LSTMConfig(attention="additive", thinking_steps=4)
    assert config.resized(128, 3, num_layers=2, num_heads=4) == config.replace(
        hidden_dim=131, encoder_dim=32, attention_dim=32
    )
    assert config.resized(1, 0).encoder_dim == 1

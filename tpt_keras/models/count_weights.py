import math

import keras

from tpt_keras.errors import UsageError
from tpt_keras.layers import make_binding
from tpt_keras.layers import make_mechanism
from tpt_keras.models.lstm_config import LSTMConfig
from tpt_keras.models.transformer_config import TransformerConfig


def count_weights(config):
    """How many weights a model has, without making it.

    Args:
        config: A `ModelConfig`, such as a `TransformerConfig`.

    Returns:
        What `count_params()` of the model gives.

    Example:

    >>> from tpt_keras.models.presets import PRESETS
    >>> count_weights(PRESETS["transformer"].replace(vocabulary_size=73))
    44188160
    """
    if isinstance(config, LSTMConfig):
        return _lstm_weights(config)
    if isinstance(config, TransformerConfig):
        return _transformer_weights(config)
    raise UsageError(f"The weights of a {config.KIND} are not counted here.")


def _lstm_weights(config):
    """See the docstrings of `SimpleLSTM` and `AttentionalLSTM`."""
    v, h = config.vocabulary_size, config.hidden_dim
    if config.attention == "none":
        return 4 * h * (v + h + 1) + v * (h + 1)
    e, a = config.encoder_dim, config.attention_dim
    encoder = 8 * e * (v + e + 1)
    attention = (2 * e + 1) * a + h * a + a
    return encoder + attention + 4 * h * (v + a + h + 1) + v * (h + a + 1)


def _transformer_weights(config):
    d, f = config.hidden_dim, config.intermediate_dim
    affine = d * d + d
    heads = _heads_shape(config)
    binding = make_binding(config.binding, config.binding_options)
    mechanism = make_mechanism(config.attention, config.attention_options)
    of_binding = _count(binding, heads)
    of_mechanism = _count(mechanism, heads, heads, heads)
    role = config.num_heads * binding.role_dim * binding.has_role
    attention = 3 * affine + role * (d + 1) + of_binding
    if mechanism.output_dim is None:
        attention += config.num_heads * binding.bound_dim * d + d
    # Of positions, cross-attention knows nothing: it takes dot products.
    mechanisms = (2 if mechanism.needs_positions else 3) * of_mechanism
    feed_forward = d * f + f + f * d + d
    # An encoder cell has one attention and 3 layer norms, a decoder cell two
    # and 4. A layer norm has 2 d weights.
    cells = 3 * attention + 2 * feed_forward + 7 * 2 * d
    embedding = config.vocabulary_size * d + config.bind_embeddings * affine
    return embedding + config.num_layers * (cells + mechanisms)


def _heads_shape(config):
    key_dim = config.hidden_dim // config.num_heads
    return None, None, config.num_heads, key_dim


def _count(part, *shapes):
    """Builds a mechanism or a binding without the weights that it adds."""
    sizes = []

    def add_weight(shape=(), **kwargs):
        sizes.append(math.prod(shape))
        return keras.KerasTensor(shape)

    part.add_weight = add_weight
    part.build(*shapes)
    # Those of layers that it is made of are there.
    return sum(sizes) + part.count_params()

from tpt_keras.layers.bindings import make_binding
from tpt_keras.layers.scores import make_score
from tpt_keras.models.lstm_config import LSTMConfig
from tpt_keras.models.transformer_xl_config import TransformerXLConfig


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
    if isinstance(config, TransformerXLConfig):
        return _transformer_xl_weights(config)
    return _transformer_weights(config)


def _lstm_weights(config):
    """See the docstrings of `SimpleLSTM` and `AttentionalLSTM`."""
    v, h = config.vocabulary_size, config.hidden_dim
    if config.attention == "none":
        return 4 * h * (v + h + 1) + v * (h + 1)
    e, a = config.encoder_dim, config.attention_dim
    encoder = 8 * e * (v + e + 1)
    attention = (2 * e + 1) * a + h * a + a
    return encoder + attention + 4 * h * (v + a + h + 1) + v * (h + a + 1)


def _transformer_xl_weights(config):
    d, f = config.hidden_dim, config.intermediate_dim
    binding = make_binding(config.binding)
    binding.build(_heads_shape(config))
    role = config.num_heads * binding.role_dim * binding.has_role
    bound = config.num_heads * binding.bound_dim
    # Query, key, value, distance, role and output maps, without biases.
    attention = (4 * d + role + bound) * d + binding.count_params()
    cell = attention + (2 * d * f + f + d) + 2 * 2 * d
    # All layers share the two biases of queries.
    return config.vocabulary_size * (d + 1) + config.num_layers * cell + 2 * d


def _transformer_weights(config):
    d, f = config.hidden_dim, config.intermediate_dim
    affine = d * d + d
    binding = make_binding(config.binding, config.binding_options)
    binding.build(_heads_shape(config))
    role = config.num_heads * binding.role_dim * binding.has_role
    attention = (
        3 * affine
        + role * (d + 1)
        + config.num_heads * binding.bound_dim * d
        + d
        + binding.count_params()
    )
    feed_forward = d * f + f + f * d + d
    # An encoder cell has one attention and 3 layer norms, a decoder cell two
    # and 4. A layer norm has 2 d weights.
    cells = 3 * attention + 2 * feed_forward + 7 * 2 * d
    embedding = config.vocabulary_size * d + config.bind_embeddings * affine
    return embedding + config.num_layers * (cells + _score_weights(config))


def _heads_shape(config):
    return None, None, config.num_heads, config.hidden_dim // config.num_heads


def _score_weights(config):
    """The weights that the scores of an encoder and a decoder cell own."""
    score = make_score(config.attention, config.attention_options)
    score.build(*3 * [_heads_shape(config)])
    # Of positions, cross-attention knows nothing: it takes dot products.
    attentions = 2 if score.needs_positions else 3
    return attentions * score.count_params()

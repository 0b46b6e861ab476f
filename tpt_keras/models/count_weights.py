from tpt_keras.layers.binding import bound_dim
from tpt_keras.layers.binding import has_role
from tpt_keras.layers.scores import score_class


def count_weights(config):
    """How many weights a model has, without making it.

    Args:
        config: A `TransformerConfig`.

    Returns:
        What `count_params()` of its `Transformer` gives.

    Example:

    >>> from tpt_keras.models.presets import PRESETS
    >>> count_weights(PRESETS["transformer"].replace(vocabulary_size=73))
    44188160
    """
    d, f = config.hidden_dim, config.intermediate_dim
    affine = d * d + d
    key_dim = d // config.num_heads
    bound = config.num_heads * bound_dim(key_dim, config.binding)
    attention = (3 + has_role(config.binding)) * affine + bound * d + d
    feed_forward = d * f + f + f * d + d
    # An encoder cell has one attention and 3 layer norms, a decoder cell two
    # and 4. A layer norm has 2 d weights.
    cells = 3 * attention + 2 * feed_forward + 7 * 2 * d
    embedding = config.vocabulary_size * d + config.bind_embeddings * affine
    return embedding + config.num_layers * (cells + _score_weights(config))


def _score_weights(config):
    """The weights that the scores of an encoder and a decoder cell own."""
    found = score_class(config.attention)
    score = found()
    heads = (
        None,
        None,
        config.num_heads,
        config.hidden_dim // config.num_heads,
    )
    score.build(heads, heads, heads)
    # Of positions, cross-attention knows nothing: it takes dot products.
    attentions = 2 if found.needs_positions else 3
    return attentions * score.count_params()

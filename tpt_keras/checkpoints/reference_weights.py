"""The table of the released code's weights and ours.

The released code names a weight `<module>.weight` or `<module>.bias`. Its
linear maps hold `(fan_out, fan_in)`, ours `(fan_in, fan_out)` with an axis for
the heads; everything else is laid out alike.
"""

import math
import operator
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# A layer of a cell, as a path of attributes, and its released module.
ENCODER_CELL = {
    "self_attention_layer_norm": "layernorm1",
    "self_attention": "MHA",
    "feed_forward_layer_norm": "layernorm2",
    "feed_forward.intermediate_dense": "densefilter.linear1",
    "feed_forward.output_dense": "densefilter.linear2",
    "output_layer_norm": "layernorm3",
}
DECODER_CELL = {
    "self_attention_layer_norm": "layernorm1",
    "self_attention": "selfAttn",
    "cross_attention_layer_norm": "layernorm2",
    "cross_attention": "encAttn",
    "feed_forward_layer_norm": "layernorm3",
    "feed_forward.intermediate_dense": "densefilter.linear1",
    "feed_forward.output_dense": "densefilter.linear2",
    "output_layer_norm": "layernorm4",
}
# The maps of an attention layer and their released modules for each binding:
# the released TP-Transformer and baseline name them differently.
ATTENTION = {
    "hadamard": {
        "query_dense": "W_q",
        "key_dense": "W_k",
        "value_dense": "W_v",
        "role_dense": "W_r",
        "output_dense": "W_o",
    },
    "none": {
        "query_dense": "w_q",
        "key_dense": "w_k",
        "value_dense": "w_v",
        "output_dense": "linear",
    },
}
EMBEDDINGS = "embedding.tok_embedding.weight"
EMBEDDING_ROLE = "embedding.linear"
# A buffer of the released embedding: `(1, MAX_POSITIONS, hidden_dim)`.
SINUSOIDS = "embedding.pe"
MAX_POSITIONS = 200


class ReferenceWeight(NamedTuple):
    """A weight and its counterpart in the released code.

    Args:
        name: The released code's name.
        variable: The `keras.Variable`.
        shape: The released code's shape.
        to_reference: Function from our array to the released code's.
        from_reference: Function from the released code's array to ours.
    """

    name: str
    variable: object
    shape: tuple
    to_reference: Callable
    from_reference: Callable


def reference_weights(model):
    """Lists every weight of a model with its released name and layout.

    Args:
        model: A `Transformer` whose binding is a key of `ATTENTION`.

    Returns:
        List of `ReferenceWeight`.
    """
    attention = ATTENTION[model.config.binding]
    embeddings = model.embedding.embeddings
    weights = [_reshaped(EMBEDDINGS, embeddings, tuple(embeddings.shape))]
    if model.embedding.role_dense is not None:
        weights += _affine_map(EMBEDDING_ROLE, model.embedding.role_dense)
    for stack, cells, table in (
        ("encoder", model.encoder_cells, ENCODER_CELL),
        ("decoder", model.decoder_cells, DECODER_CELL),
    ):
        for index, cell in enumerate(cells):
            for path, module in table.items():
                name = f"{stack}.layers.{index}.{module}"
                layer = operator.attrgetter(path)(cell)
                if path.endswith("layer_norm"):
                    weights += _layer_norm(name, layer)
                elif path.endswith("attention"):
                    for attribute, part in attention.items():
                        weights += _affine_map(
                            f"{name}.{part}", getattr(layer, attribute)
                        )
                else:
                    weights += _affine_map(name, layer)
    return weights


def _affine_map(name, projection):
    """Kernel and bias of a `Projection`."""
    kernel = projection.kernel
    fan_in = math.prod(kernel.shape[: projection.num_input_axes])
    fan_out = math.prod(projection.bias.shape)
    return [
        ReferenceWeight(
            f"{name}.weight",
            kernel,
            (fan_out, fan_in),
            lambda ours: np.reshape(ours, (fan_in, fan_out)).T,
            lambda theirs: np.reshape(theirs.T, kernel.shape),
        ),
        _reshaped(f"{name}.bias", projection.bias, (fan_out,)),
    ]


def _layer_norm(name, layer):
    return [
        _reshaped(f"{name}.weight", layer.gamma, tuple(layer.gamma.shape)),
        _reshaped(f"{name}.bias", layer.beta, tuple(layer.beta.shape)),
    ]


def _reshaped(name, variable, shape):
    """A weight that is only reshaped."""
    return ReferenceWeight(
        name,
        variable,
        shape,
        lambda ours: np.reshape(ours, shape),
        lambda theirs: np.reshape(theirs, variable.shape),
    )

"""Keras layers of the TP-Transformer, in pure `keras.ops`."""

from tpt_keras.layers.base_layer import dtype_config
from tpt_keras.layers.bindings import BINDINGS
from tpt_keras.layers.bindings import Binding
from tpt_keras.layers.bindings import make_binding
from tpt_keras.layers.cells import DecoderCell
from tpt_keras.layers.cells import EncoderCell
from tpt_keras.layers.mechanisms import MECHANISMS
from tpt_keras.layers.mechanisms import AttentionMechanism
from tpt_keras.layers.mechanisms import DotProductAttention
from tpt_keras.layers.mechanisms import MultiLinearAttention
from tpt_keras.layers.mechanisms import RelationalAttention
from tpt_keras.layers.mechanisms import RelativeAttention
from tpt_keras.layers.mechanisms import TransformerXLAttention
from tpt_keras.layers.mechanisms import make_mechanism
from tpt_keras.layers.mechanisms.relative_attention import QueryBiases
from tpt_keras.layers.projection import FanInUniform
from tpt_keras.layers.projection import FeedForward
from tpt_keras.layers.projection import Projection
from tpt_keras.layers.token_and_position_embedding import ATTENTION_POSITIONS
from tpt_keras.layers.token_and_position_embedding import POSITIONS
from tpt_keras.layers.token_and_position_embedding import DigitPlaceEmbedding
from tpt_keras.layers.token_and_position_embedding import (
    TokenAndPositionEmbedding,
)
from tpt_keras.layers.token_and_position_embedding import position_sinusoids
from tpt_keras.layers.tp_multi_head_attention import TPMultiHeadAttention
from tpt_keras.layers.transformer_xl_cell import TransformerXLCell

__all__ = [
    "ATTENTION_POSITIONS",
    "BINDINGS",
    "MECHANISMS",
    "POSITIONS",
    "AttentionMechanism",
    "Binding",
    "DecoderCell",
    "DigitPlaceEmbedding",
    "DotProductAttention",
    "EncoderCell",
    "FanInUniform",
    "FeedForward",
    "MultiLinearAttention",
    "Projection",
    "QueryBiases",
    "RelationalAttention",
    "RelativeAttention",
    "TPMultiHeadAttention",
    "TokenAndPositionEmbedding",
    "TransformerXLAttention",
    "TransformerXLCell",
    "dtype_config",
    "make_binding",
    "make_mechanism",
    "position_sinusoids",
]

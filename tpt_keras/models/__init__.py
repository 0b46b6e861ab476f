"""The TP-Transformer and its variants."""

from tpt_keras.models.build_model import build_model
from tpt_keras.models.presets import PRESETS
from tpt_keras.models.sequence_to_sequence import SequenceToSequence
from tpt_keras.models.transformer import Transformer
from tpt_keras.models.transformer_config import TransformerConfig

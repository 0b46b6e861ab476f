"""The TP-Transformer, its variants and the baselines of its data."""

from tpt_keras.models.configs import LSTMConfig
from tpt_keras.models.configs import TransformerConfig
from tpt_keras.models.lstms import AttentionalLSTM
from tpt_keras.models.lstms import SimpleLSTM
from tpt_keras.models.presets import PRESETS
from tpt_keras.models.presets import TRAINED_PRESETS
from tpt_keras.models.sequence_to_sequence import SequenceToSequence
from tpt_keras.models.sequence_to_sequence import build_model
from tpt_keras.models.sequence_to_sequence import count_weights
from tpt_keras.models.transformer import Transformer
from tpt_keras.models.weights import enable_lora

__all__ = [
    "PRESETS",
    "TRAINED_PRESETS",
    "AttentionalLSTM",
    "LSTMConfig",
    "SequenceToSequence",
    "SimpleLSTM",
    "Transformer",
    "TransformerConfig",
    "build_model",
    "count_weights",
    "enable_lora",
]

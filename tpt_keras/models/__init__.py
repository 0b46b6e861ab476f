"""The TP-Transformer, its variants and the baselines of its data."""

from tpt_keras.models.attentional_lstm import AttentionalLSTM
from tpt_keras.models.build_model import build_model
from tpt_keras.models.lstm_config import LSTMConfig
from tpt_keras.models.presets import PRESETS
from tpt_keras.models.sequence_to_sequence import SequenceToSequence
from tpt_keras.models.simple_lstm import SimpleLSTM
from tpt_keras.models.transformer import Transformer
from tpt_keras.models.transformer_config import TransformerConfig

"""The TP-Transformer and its variants."""

from tpt_keras.models.presets import PRESETS
from tpt_keras.models.transformer import Transformer
from tpt_keras.models.transformer_config import TransformerConfig
from tpt_keras.models.transformer_xl import TransformerXL
from tpt_keras.models.transformer_xl_config import XL_PRESETS
from tpt_keras.models.transformer_xl_config import TransformerXLConfig

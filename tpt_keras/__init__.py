"""The TP-Transformer for Keras and TensorFlow."""

from tpt_keras import layers
from tpt_keras import models
from tpt_keras.layers import TPMultiHeadAttention
from tpt_keras.models import Transformer
from tpt_keras.models import TransformerConfig
from tpt_keras.models.load_model import load_model

__version__ = "0.1.0"

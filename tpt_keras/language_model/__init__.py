"""Transformer-XL, a language model that learns a text and continues it."""

from tpt_keras.language_model.config import XL_PRESETS
from tpt_keras.language_model.config import TransformerXLConfig
from tpt_keras.language_model.training import TextLearner
from tpt_keras.language_model.training import TextSegments
from tpt_keras.language_model.training import language_model_trainer
from tpt_keras.language_model.transformer_xl import TransformerXL
from tpt_keras.language_model.transformer_xl import load_language_model

__all__ = [
    "XL_PRESETS",
    "TextLearner",
    "TextSegments",
    "TransformerXL",
    "TransformerXLConfig",
    "language_model_trainer",
    "load_language_model",
]

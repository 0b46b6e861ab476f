"""The TP-Transformer for Keras 3.

A name is imported when it is first used: `import tpt_keras` alone is cheap.
"""

import importlib
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from tpt_keras import checkpoints as checkpoints
    from tpt_keras import decoding as decoding
    from tpt_keras import layers as layers
    from tpt_keras import models as models
    from tpt_keras import tokenizers as tokenizers
    from tpt_keras.errors import UsageError as UsageError
    from tpt_keras.layers import TPMultiHeadAttention as TPMultiHeadAttention
    from tpt_keras.models import PRESETS as PRESETS
    from tpt_keras.models import SequenceToSequence as SequenceToSequence
    from tpt_keras.models import Transformer as Transformer
    from tpt_keras.models import TransformerConfig as TransformerConfig
    from tpt_keras.models.stored import load_model as load_model
    from tpt_keras.tokenizers import CharacterTokenizer as CharacterTokenizer

__version__ = "0.13.0"

_MODULES = {
    "CharacterTokenizer": "tpt_keras.tokenizers",
    "PRESETS": "tpt_keras.models",
    "SequenceToSequence": "tpt_keras.models",
    "TPMultiHeadAttention": "tpt_keras.layers",
    "Transformer": "tpt_keras.models",
    "TransformerConfig": "tpt_keras.models",
    "UsageError": "tpt_keras.errors",
    "load_model": "tpt_keras.models.stored",
}
_SUBPACKAGES = ("checkpoints", "decoding", "layers", "models", "tokenizers")
__all__ = [*_MODULES, *_SUBPACKAGES]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"tpt_keras.{name}")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'tpt_keras' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The TP-Transformer for Keras 3.

A name is imported when it is first used: `import tpt_keras` alone is cheap.
"""

import importlib

__version__ = "0.9.0"

_HOMES = {
    "CharacterTokenizer": "tpt_keras.tokenizers",
    "PRESETS": "tpt_keras.models",
    "SequenceToSequence": "tpt_keras.models",
    "TPMultiHeadAttention": "tpt_keras.layers",
    "Transformer": "tpt_keras.models",
    "TransformerConfig": "tpt_keras.models",
    "UsageError": "tpt_keras.errors",
    "load_model": "tpt_keras.models.load_model",
}
_ROOMS = ("checkpoints", "decoding", "layers", "models", "tokenizers")
__all__ = [*_HOMES, *_ROOMS]


def __getattr__(name):
    if name in _ROOMS:
        return importlib.import_module(f"tpt_keras.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'tpt_keras' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])

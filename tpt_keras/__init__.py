"""The TP-Transformer for Keras 3.

A name is imported when it is first used: `import tpt_keras` alone is cheap.
"""

import importlib
import sys
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from tpt_keras import analysis as analysis
    from tpt_keras import checkpoints as checkpoints
    from tpt_keras import decoding as decoding
    from tpt_keras import layers as layers
    from tpt_keras import models as models
    from tpt_keras import serving as serving
    from tpt_keras import tokenizers as tokenizers
    from tpt_keras import training as training
    from tpt_keras import tuning as tuning
    from tpt_keras.errors import UsageError as UsageError
    from tpt_keras.layers import TPMultiHeadAttention as TPMultiHeadAttention
    from tpt_keras.models import PRESETS as PRESETS
    from tpt_keras.models import SequenceToSequence as SequenceToSequence
    from tpt_keras.models import Transformer as Transformer
    from tpt_keras.models import TransformerConfig as TransformerConfig
    from tpt_keras.tokenizers import CharacterTokenizer as CharacterTokenizer
    from tpt_keras.typing import StrPath

    def load_model(
        model: StrPath, best: bool = False
    ) -> SequenceToSequence: ...


__version__ = "0.14.0"

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
_SUBPACKAGES = (
    *("analysis", "checkpoints", "decoding", "layers", "models", "serving"),
    *("tokenizers", "training", "tuning"),
)
__all__ = [*_MODULES, *_SUBPACKAGES]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tpt_keras' has no attribute {name!r}")
    try:
        path = _MODULES.get(name, f"tpt_keras.{name}")
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] != "tensorflow":
            raise
        from tpt_keras.errors import MissingDependencyError

        raise MissingDependencyError(
            "TensorFlow is not installed. Install it, or set the environment "
            "variable KERAS_BACKEND to jax or torch."
        ) from error
    return getattr(module, name) if name in _MODULES else module


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Keras loads a model only with its layers registered, which this does.
if "keras" in sys.modules:
    importlib.import_module("tpt_keras.models")

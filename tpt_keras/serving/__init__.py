"""Exported models with strings in and out, and clients for TF Serving.

Names are imported on first use, so that `OnnxModel` and `RestClient` need no
TensorFlow.
"""

import importlib
from typing import TYPE_CHECKING
from typing import Any

if TYPE_CHECKING:
    from tpt_keras.serving.client import GrpcClient as GrpcClient
    from tpt_keras.serving.client import RestClient as RestClient
    from tpt_keras.serving.client import ServingError as ServingError
    from tpt_keras.serving.onnx_model import OnnxModel as OnnxModel
    from tpt_keras.serving.saved_model import SavedModel as SavedModel

_HOMES = {
    "GrpcClient": "client",
    "OnnxModel": "onnx_model",
    "RestClient": "client",
    "SavedModel": "saved_model",
    "ServingError": "client",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        home = importlib.import_module(f"tpt_keras.serving.{_HOMES[name]}")
        return getattr(home, name)
    raise AttributeError(f"tpt_keras.serving has no attribute {name!r}")

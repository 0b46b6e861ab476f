"""Exported models with strings in and out, and a client for TF Serving.

`OnnxModel` and `RestClient` need no TensorFlow, and importing this needs none.
"""

from tpt_keras.serving.client import RestClient
from tpt_keras.serving.client import ServingError
from tpt_keras.serving.onnx_model import OnnxModel
from tpt_keras.serving.saved_model import SavedModel

__all__ = [
    "OnnxModel",
    "RestClient",
    "SavedModel",
    "ServingError",
]

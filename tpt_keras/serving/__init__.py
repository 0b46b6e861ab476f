"""SavedModels with strings in and out, and clients for TF Serving.

Names are imported on first use, so that `RestClient` needs no TensorFlow.
"""

import importlib

_HOMES = {
    "GrpcClient": "client",
    "RestClient": "client",
    "SavedModel": "saved_model",
    "ServingError": "client",
}
__all__ = [*_HOMES]


def __getattr__(name):
    if name in _HOMES:
        home = importlib.import_module(f"tpt_keras.serving.{_HOMES[name]}")
        return getattr(home, name)
    raise AttributeError(f"tpt_keras.serving has no attribute {name!r}")

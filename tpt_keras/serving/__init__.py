"""Exporting a model, asking it where it is served or here, trying a server.

A room for each: `export`, `clients` and `local_server`. What an export's
folder holds, which all of them know, stands beside them.

Names are imported when they are first used: `RestClient` needs no TensorFlow.
The export itself is `tpt_keras.serving.export.export`.
"""

import importlib

_HOMES = {
    "Answer": "clients.answer",
    "GrpcClient": "clients.grpc_client",
    "KerasModel": "clients.keras_model",
    "LocalServer": "local_server.local_server",
    "RestClient": "clients.rest_client",
    "SavedModel": "clients.saved_model",
    "ServingError": "clients.serving_error",
}
__all__ = [*_HOMES]


def __getattr__(name):
    if name in _HOMES:
        home = importlib.import_module(f"tpt_keras.serving.{_HOMES[name]}")
        return getattr(home, name)
    raise AttributeError(
        f"module 'tpt_keras.serving' has no attribute {name!r}"
    )


def __dir__():
    return sorted([*globals(), *__all__])

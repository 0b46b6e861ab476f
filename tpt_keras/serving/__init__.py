"""Asking an exported model, served or in this process; a server to try it.

Names are imported when they are first used: `RestClient` needs no TensorFlow.
The export itself is `tpt_keras.serving.export.export`.
"""

import importlib

_HOMES = {
    "Answer": "answer",
    "GrpcClient": "grpc_client",
    "LocalServer": "local_server",
    "RestClient": "rest_client",
    "SavedModel": "saved_model",
    "ServingError": "serving_error",
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

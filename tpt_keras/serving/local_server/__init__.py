"""A stand-in for TF Serving, for development on one machine."""

from tpt_keras.serving.local_server.local_server import LocalServer

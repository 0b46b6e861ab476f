"""Serves an exported model on this machine.

    python -m experiments.serve --saved_model=saved_models/demo

A stand-in for development: it speaks TF Serving's gRPC and REST and takes over
a new version when python -m experiments.export has made one. To serve others,
give the same folder to TF Serving itself.
"""

import os
import signal
import threading

from absl import flags
from absl import logging

from tpt_keras.errors import UsageError

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_string("saved_model", None, "The folder of a model's versions.")
flags.DEFINE_string("model_name", "solver", "The name to ask for it by.")
flags.DEFINE_integer("port", 8500, "Port for gRPC; 0 for any.")
flags.DEFINE_integer("rest_port", 8501, "Port for REST; 0 for any.")


def main():
    if not FLAGS.saved_model:
        raise UsageError("--saved_model is needed.")
    for name in ("port", "rest_port"):
        if not 0 <= FLAGS[name].value < 65536:
            raise UsageError(f"--{name} must be from 0 to 65535.")
    # Of a port that is taken it would speak in lines of its own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tpt_keras.serving import LocalServer

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    # It has something to say when a version takes over.
    logging.set_verbosity(logging.INFO)
    with LocalServer(
        FLAGS.saved_model, FLAGS.model_name, FLAGS.port, FLAGS.rest_port
    ) as server:
        print(f"gRPC: {server.address}", flush=True)
        print(f"REST: {server.rest_address}", flush=True)
        stopped.wait()


if __name__ == "__main__":
    _cli.run(main)

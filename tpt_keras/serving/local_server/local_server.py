import concurrent.futures
import socket
import threading

import grpc
from werkzeug.serving import WSGIRequestHandler
from werkzeug.serving import make_server

from tpt_keras.errors import port_taken
from tpt_keras.serving.local_server.batching import Batching
from tpt_keras.serving.local_server.model_versions import ModelVersions
from tpt_keras.serving.local_server.prediction_service import PredictionService
from tpt_keras.serving.local_server.rest_api import RestApi

_HOST = "127.0.0.1"
_BATCHING = Batching()


class LocalServer:
    """A stand-in for TF Serving, for development on one machine.

    It speaks TF Serving's gRPC and REST, as far as questions need them, and
    takes over new versions as it does. It is for this machine alone, without
    TLS, and much slower: use TF Serving itself to serve others.

    Args:
        saved_model: Folder of a model's versions.
        model_name: The name to ask for the model by.
        port: Port for gRPC; 0 for any that is free.
        rest_port: Port for REST; 0 for any that is free.
        batching: How requests become batches; a `Batching`.
        poll_seconds: Time between two looks for a new version.

    Raises:
        UsageError: If there is nothing to serve, or a port is taken.

    Example:

    ```python
    with LocalServer("saved_models/demo") as server:
        RestClient(server.rest_address).answer(["What is 1 + 1?"])
    ```
    """

    def __init__(
        self,
        saved_model,
        model_name="solver",
        port=8500,
        rest_port=8501,
        batching=_BATCHING,
        poll_seconds=1.0,
    ):
        self._poll_seconds = poll_seconds
        self._versions = ModelVersions(model_name, saved_model, batching)
        self._grpc_server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(max_workers=64),
            # Or two servers could share a port, and each get some requests.
            options=[("grpc.so_reuseport", 0)],
        )
        PredictionService(self._versions).add_to(self._grpc_server)
        self._rest_server = _make_rest_server(
            rest_port, RestApi(self._versions)
        )
        self._rest_thread = threading.Thread(
            target=self._rest_server.serve_forever,
            kwargs={"poll_interval": 0.1},
        )
        try:
            port = self._grpc_server.add_insecure_port(f"{_HOST}:{port}")
        except RuntimeError:
            self._rest_server.server_close()
            raise port_taken(port, "port") from None
        self.address = f"{_HOST}:{port}"
        self.rest_address = f"{_HOST}:{self._rest_server.port}"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exception):
        self.stop()

    def start(self):
        """Starts to answer, in threads of its own."""
        self._grpc_server.start()
        self._rest_thread.start()
        self._versions.poll(self._poll_seconds)

    def stop(self):
        """Takes no more requests, and returns when the last was answered.

        Also if it was never started: the ports are free then.
        """
        if self._rest_thread.ident is None:
            # Neither server gives back the port of what never ran.
            self.start()
        self._versions.stop()
        self._rest_server.shutdown()
        self._rest_thread.join()
        self._grpc_server.stop(grace=60).wait()


class _RequestHandler(WSGIRequestHandler):
    # A connection for every request, so that none is open when it is answered
    # and the server can stop; and none waits for a client that says nothing.
    protocol_version = "HTTP/1.0"
    timeout = 30

    def log_request(self, *args):
        pass


def _make_rest_server(port, app):
    # Bound here, for Werkzeug would end the process if the port is taken.
    try:
        listener = socket.create_server((_HOST, port), backlog=128)
    except OSError:
        raise port_taken(port, "rest_port") from None
    with listener:
        server = make_server(
            _HOST,
            port,
            app,
            threaded=True,
            request_handler=_RequestHandler,
            fd=listener.fileno(),
        )
    # Closing it waits for those that are being answered.
    server.daemon_threads = False
    return server

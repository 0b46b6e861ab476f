"""A server that fails as it is told, to see what a client makes of it."""

import concurrent.futures
import contextlib
import json
import socket
import threading
import time

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc
from werkzeug import Request
from werkzeug import Response
from werkzeug.serving import WSGIRequestHandler
from werkzeug.serving import make_server

HTTP_STATUSES = {
    "INTERNAL": 500,
    "INVALID_ARGUMENT": 400,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}


def free_port():
    with socket.create_server(("localhost", 0)) as listener:
        return listener.getsockname()[1]


class FlakyServer(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers every question with itself, after some failures.

    Args:
        failures: Names of gRPC's codes, one for every request that fails.
        outputs: What it calls the answers.
        delay: Seconds that a request takes.
    """

    def __init__(self, failures=(), outputs=("answers", "status"), delay=0.0):
        self.failures = list(failures)
        self.outputs = outputs
        self.delay = delay
        self.batch_sizes = []

    @contextlib.contextmanager
    def serve(self, protocol, port=0):
        """Serves over one of the protocols; gives the address."""
        serve = {"grpc": self._serve_grpc, "rest": self._serve_rest}[protocol]
        with serve(port) as port:
            yield f"127.0.0.1:{port}"

    def Predict(self, request, context):  # noqa: N802
        questions = tf.make_ndarray(request.inputs["questions"])
        failure = self._handle(len(questions))
        if failure:
            context.abort(grpc.StatusCode[failure], "as told")
        response = predict_pb2.PredictResponse()
        values = {"status": [b"OK"] * len(questions)}
        for name in self.outputs:
            response.outputs[name].CopyFrom(
                tf.make_tensor_proto(values.get(name, questions))
            )
        return response

    @Request.application
    def _respond(self, request):
        questions = request.json["inputs"]["questions"]
        failure = self._handle(len(questions))
        if failure:
            content, status = {"error": "as told"}, HTTP_STATUSES[failure]
        else:
            values = {"status": ["OK"] * len(questions)}
            outputs = {
                name: values.get(name, questions) for name in self.outputs
            }
            [*_, only] = outputs.values()
            content = {"outputs": outputs if len(outputs) > 1 else only}
            status = 200
        return Response(json.dumps(content), status)

    def _handle(self, batch_size):
        self.batch_sizes.append(batch_size)
        time.sleep(self.delay)
        return self.failures.pop(0) if self.failures else None

    @contextlib.contextmanager
    def _serve_grpc(self, port):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            self, server
        )
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        yield port
        server.stop(grace=None).wait()

    @contextlib.contextmanager
    def _serve_rest(self, port):
        server = make_server(
            "127.0.0.1",
            port,
            self._respond,
            threaded=True,
            request_handler=_QuietHandler,
        )
        thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.05}
        )
        thread.start()
        yield server.port
        server.shutdown()
        thread.join()


class _QuietHandler(WSGIRequestHandler):
    protocol_version = "HTTP/1.0"

    def log(self, *args):
        pass

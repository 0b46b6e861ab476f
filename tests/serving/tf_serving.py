"""A server with TF Serving's interfaces, for tests of the clients."""

import base64
import concurrent.futures
import contextlib
import http.server
import json
import socket
import threading
import time

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

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


def echo(questions):
    """The outputs of a model that repeats the question."""
    return {
        "answers": questions,
        "log_probs": [-0.5] * len(questions),
        "status": ["OK"] * len(questions),
    }


def score(questions, answers):
    """The outputs of a model that thinks of lengths."""
    pairs = zip(questions, answers, strict=True)
    return {
        "log_probs": [-float(len(q) + 10 * len(a)) for q, a in pairs],
        "status": ["OK"] * len(questions),
    }


class TFServing(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Serves a model under the name `"solver"`.

    Args:
        predict: Function from a list of strings to a dict of lists.
        failures: Names of gRPC's codes, one for each request that fails.
        delay: Seconds that a request takes.

    Attributes:
        batch_sizes: Number of questions of every request.
    """

    def __init__(self, predict=echo, failures=(), delay=0.0):
        self.predict = predict
        self.failures = list(failures)
        self.delay = delay
        self.batch_sizes = []

    @contextlib.contextmanager
    def serve(self, protocol, port=0):
        """Serves over one of the protocols; yields the address."""
        serve = {"grpc": self._serve_grpc, "rest": self._serve_rest}[protocol]
        with serve(port) as port:
            yield f"127.0.0.1:{port}"

    def Predict(self, request, context):  # noqa: N802
        inputs = {
            name: tf.make_ndarray(tensor).tolist()
            for name, tensor in request.inputs.items()
        }
        spec = request.model_spec
        code, outputs = self._handle(spec.name, spec.signature_name, inputs)
        if code:
            context.abort(grpc.StatusCode[code], outputs)
        response = predict_pb2.PredictResponse()
        for name, values in outputs.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
        return response

    def respond(self, path, body):
        """The HTTP status and JSON content for a request."""
        name = path.removeprefix("/v1/models/").removesuffix(":predict")
        request = json.loads(body)
        inputs = {
            key: [base64.b64decode(text["b64"]) for text in texts]
            for key, texts in request["inputs"].items()
        }
        code, outputs = self._handle(name, request["signature_name"], inputs)
        if code:
            return HTTP_STATUSES[code], {"error": outputs}
        return 200, {"outputs": outputs}

    def _handle(self, model_name, signature, inputs):
        """A code and a message, or `None` and the outputs."""
        inputs = {
            name: [text.decode(errors="replace") for text in texts]
            for name, texts in inputs.items()
        }
        questions = inputs.pop("questions")
        assert set(inputs) == ({"answers"} if signature == "score" else set())
        self.batch_sizes.append(len(questions))
        time.sleep(self.delay)
        if self.failures:
            return self.failures.pop(0), "as told"
        if model_name != "solver":
            return "NOT_FOUND", "no such model"
        if signature == "score":
            return None, score(questions, inputs["answers"])
        return None, self.predict(questions)

    @contextlib.contextmanager
    def _serve_grpc(self, port):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            self, server
        )
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        try:
            yield port
        finally:
            server.stop(grace=None).wait()

    def _serve_rest(self, port):
        def respond(path, body):
            status, content = self.respond(path, body)
            return status, json.dumps(content).encode()

        return http_server(respond, port)


@contextlib.contextmanager
def http_server(respond, port=0):
    """Serves HTTP in a thread; yields the port.

    Args:
        respond: Function from the path and the content of a request to the
            status and the content of its response.
        port: The port, or 0 for a free one.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers.get("Content-Length", 0))
            status, content = respond(self.path, self.rfile.read(size))
            self.send_response(status)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(content)

        do_GET = do_POST  # noqa: N815

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

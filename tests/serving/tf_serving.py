"""A server with TF Serving's REST, for tests of the client."""

import base64
import contextlib
import http.server
import json
import socket
import threading
import time

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


class TFServing:
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
    def serve(self, port=0):
        """Serves, and yields the address."""
        with http_server(self.respond, port) as port:
            yield f"127.0.0.1:{port}"

    def respond(self, path, body):
        """The HTTP status and the content for a request."""
        name = path.removeprefix("/v1/models/").removesuffix(":predict")
        request = json.loads(body)
        inputs = {
            key: [base64.b64decode(text["b64"]) for text in texts]
            for key, texts in request["inputs"].items()
        }
        code, outputs = self._handle(name, request["signature_name"], inputs)
        if code:
            content = {"error": outputs}
            return HTTP_STATUSES[code], json.dumps(content).encode()
        return 200, json.dumps({"outputs": outputs}).encode()

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
        assert signature == "n_best"
        return None, self.predict(questions)


@contextlib.contextmanager
def http_server(respond, port=0):
    """Serves HTTP in a thread; yields the port.

    Args:
        respond: Function from the path, with a token, and the content of a
            request to the status and the content, or its parts, of a response.
        port: The port, or 0 for a free one.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers.get("Content-Length", 0))
            path = self.path + self.headers.get("Authorization", "")
            status, content = respond(path, self.rfile.read(size))
            self.send_response(status)
            if status == 503:
                self.send_header("Retry-After", "86400")
            self.end_headers()
            parts = [content] if isinstance(content, bytes) else content
            with contextlib.suppress(OSError):
                for part in parts:
                    self.wfile.write(part)

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

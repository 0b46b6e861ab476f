"""What the client over REST makes of servers that are none, or broken."""

import contextlib
import gzip
import json
import socket
import socketserver
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpt_keras.serving.clients.answer import Answer
from tpt_keras.serving.clients.rest_client import RestClient
from tpt_keras.serving.clients.serving_error import ServingError

GOOD = {"outputs": {"answers": ["2"], "log_probs": [-0.5], "status": ["OK"]}}
STATUS = {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}


class RawServer(socketserver.ThreadingTCPServer):
    """Says the same bytes to everyone, whatever it is asked."""

    daemon_threads = True

    def __init__(self):
        self.says = [b""]
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"


class _Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(2**16)
        with contextlib.suppress(OSError):
            for part in self.server.says:
                self.request.sendall(part)
            # If it were closed before all of the question was read, the
            # connection would be reset, and what was said be lost.
            self.request.shutdown(socket.SHUT_WR)
            self.request.settimeout(5)
            while self.request.recv(2**16):
                pass


@pytest.fixture(scope="module")
def server():
    with RawServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def http(body, *headers, status="200 OK", length=None):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Length: {len(body) if length is None else length}",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def ask(server, *says, timeout=5):
    """The answers, and whether it is ready; or the one line that is raised."""
    server.says = says
    with RestClient(server.address, timeout=timeout, retries=0) as client:
        is_ready = client.is_ready()
        try:
            return client.answer(["1 + 1"]), is_ready
        except ServingError as error:
            message = str(error)
    assert server.address in message
    assert "\n" not in message
    assert len(message) < 1500
    return message, is_ready


def test_a_good_server(server):
    assert ask(server, http(GOOD)) == ([Answer("2", -0.5, "OK")], False)
    assert ask(server, http(STATUS))[1]
    packed = gzip.compress(json.dumps(GOOD).encode())
    answers, _ = ask(server, http(packed, "Content-Encoding: gzip"))
    assert answers == [Answer("2", -0.5, "OK")]


@pytest.mark.parametrize(
    "says",
    [
        # ChunkedEncodingError: the body ends early.
        http(GOOD, length=1000),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nx",
        # ContentDecodingError.
        http(GOOD, "Content-Encoding: gzip"),
        # TooManyRedirects, and to nowhere.
        http(b"", "Location: /v1/models/solver", status="302 Found"),
        http(b"", "Location: http://", status="302 Found"),
        http(b"", "Location: nothing://x", status="307 No"),
        # No HTTP.
        b"",
        b"nothing",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
        b"\xff" * 1000,
    ],
)
def test_no_answer_that_http_knows(server, says):
    message, is_ready = ask(server, says)
    assert isinstance(message, str)
    assert not is_ready


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff\xfe{",
        b"[" * 200_000,
        [],
        None,
        3,
        "text",
        {},
        {"outputs": None},
        {"outputs": []},
        {"outputs": ["2"]},
        {"outputs": {}},
        {"outputs": {"answers": ["2"]}},
        {"outputs": {"answers": ["2"], "status": []}},
        {"outputs": {"answers": [], "status": []}},
        {"outputs": {"answers": ["2", "3"], "status": ["OK", "OK"]}},
        {"outputs": {"answers": "2", "status": "O"}},
        {"outputs": {"answers": {"0": "2"}, "status": ["OK"]}},
        {"outputs": {"answers": [2], "status": ["OK"]}},
        {"outputs": {"answers": ["2"], "status": [None]}},
        {"outputs": {**GOOD["outputs"], "log_probs": ["likely"]}},
        {"outputs": {**GOOD["outputs"], "log_probs": None}},
        {"outputs": {**GOOD["outputs"], "log_probs": [10**400]}},
        {"error": {"code": ["x"] * 1000}},
        {"error": "two\nlines" * 1000},
        {"model_version_status": None},
        {"model_version_status": [{}]},
        {"model_version_status": [{"version": "one", "state": "END"}]},
        {"model_version_status": [["version"]]},
        {"model_version_status": [{"version": "9" * 5000, "state": "END"}]},
    ],
)
def test_no_answer_that_tf_serving_gives(server, body):
    message, is_ready = ask(server, http(body))
    assert isinstance(message, str)
    assert not is_ready


def test_too_much(server):
    """A few hundred kilobytes that unpack to more."""
    packed = gzip.compress(b" " * 2**27, 1)
    message, _ = ask(server, http(packed, "Content-Encoding: gzip"))
    assert "67108864 bytes" in message


def test_too_slow(server):
    def drip():
        yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        for _ in range(100):
            time.sleep(0.1)
            yield b"1\r\n \r\n"

    class Drips:
        def __iter__(self):
            return drip()

    start = time.monotonic()
    server.says = Drips()
    with RestClient(server.address, timeout=0.5, retries=0) as client:
        with pytest.raises(ServingError, match=r"0\.5 seconds"):
            client.answer(["1"])
        assert not client.is_ready()
    assert time.monotonic() - start < 5


def test_silence_in_the_middle(server):
    def stop():
        yield http(GOOD, length=1000)
        time.sleep(3)

    class Stops:
        def __iter__(self):
            return stop()

    server.says = Stops()
    with (
        RestClient(server.address, timeout=0.3, retries=0) as client,
        pytest.raises(ServingError, match=r"0\.3 seconds"),
    ):
        client.answer(["1"])


@pytest.mark.parametrize(
    "host", ["a" * 70, "a b", "..", "[::1", "*", "ä" * 64, "%00", "\N{SNOWMAN}"]
)
def test_a_host_that_is_none(host):
    with RestClient(f"{host}:80", timeout=5, retries=0) as client:
        assert not client.is_ready()
        with pytest.raises(ServingError):
            client.answer(["1"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*GOOD, *GOOD["outputs"], *STATUS, "version", "state", "error"]
            ),
            values,
            max_size=4,
        )
    ),
)


@given(
    st.binary(max_size=200)
    | JSON.map(http)
    | st.tuples(
        st.sampled_from([http(GOOD), http(STATUS)]),
        st.integers(0, 200),
        st.binary(max_size=3),
    ).map(lambda edit: edit[0][: edit[1]] + edit[2] + edit[0][edit[1] + 1 :])
)
def test_whatever_it_says(server, says):
    answers, is_ready = ask(server, says, timeout=2)
    assert isinstance(is_ready, bool)
    if not isinstance(answers, str):
        [answer] = answers
        assert isinstance(answer.answer, str)
        assert isinstance(answer.status, str)
        assert answer.log_prob is None or isinstance(answer.log_prob, float)

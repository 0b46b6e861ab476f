"""The client, on real sockets."""

import math
import threading
import time

import pytest

from tests.refusals import refused
from tests.serving.tf_serving import TFServing
from tests.serving.tf_serving import free_port
from tests.serving.tf_serving import http_server
from tpt_keras.answer import Answer
from tpt_keras.answer import list_of_texts
from tpt_keras.answer import to_bytes
from tpt_keras.serving import RestClient
from tpt_keras.serving import ServingError


def ask(server, questions=("1",), **kwargs):
    """Answers of a `TFServing`."""
    with server.serve() as address, RestClient(address, **kwargs) as client:
        return client.answer(list(questions))


def code_of(server, **kwargs):
    """The code of the error that a client raises."""
    with pytest.raises(ServingError) as caught:
        ask(server, **kwargs)
    return caught.value.code


def test_questions_are_answered_in_their_order():
    questions = [
        *("1 + 1 + 1", b"1 + 2", "½漢", "", "nothing\0", '"quoted"\n'),
        *(b"\xff", "\udcff"),  # invalid UTF-8
    ]
    server = TFServing()
    answers = ask(server, questions, batch_size=5)
    assert server.batch_sizes == [5, 3]
    sent = to_bytes(list_of_texts(questions))
    texts = [text.decode(errors="replace") for text in sent]
    assert answers == [Answer(text, -0.5, "OK") for text in texts]


def test_scores():
    server = TFServing()
    with server.serve() as address, RestClient(address, batch_size=2) as client:
        answers = client.score(["1 + 1", "1", b"2"], ["2", "", "½漢"])
    assert server.batch_sizes == [2, 1]
    assert answers == [
        Answer("2", -15.0),
        Answer("", -1.0),
        Answer("½漢", -21.0),
    ]


def test_a_log_probability_may_be_missing_or_infinite():
    for log_probs in ({}, {"log_probs": [math.nan]}):
        outputs = {"answers": ["1"], "status": ["OK"], **log_probs}
        server = TFServing(lambda _, outputs=outputs: outputs)
        assert ask(server) == [Answer("1", None, "OK")]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        ("INVALID_ARGUMENT", "HTTP 400"),
        ("NOT_FOUND", "NOT_FOUND"),
        ("INTERNAL", "HTTP 500"),
    ],
)
def test_other_failures_are_not_retried(failure, code):
    server = TFServing(failures=[failure])
    assert code_of(server) == code
    assert len(server.batch_sizes) == 1


@pytest.mark.slow
def test_an_unavailable_server_is_retried_some_times():
    server = TFServing(failures=["UNAVAILABLE"] * 2)
    assert ask(server) == [Answer("1", -0.5, "OK")]
    assert len(server.batch_sizes) == 3
    server = TFServing(failures=["UNAVAILABLE"] * 9)
    assert code_of(server, timeout=1) == "UNAVAILABLE"
    assert len(server.batch_sizes) == 5


def test_a_server_that_starts_late_is_reached():
    address = f"127.0.0.1:{free_port()}"
    answers = []

    def ask_early():
        with RestClient(address) as client:
            answers.extend(client.answer(["1"]))

    thread = threading.Thread(target=ask_early)
    thread.start()
    time.sleep(0.15)
    with TFServing().serve(int(address.partition(":")[2])):
        thread.join()
    assert answers == [Answer("1", -0.5, "OK")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "token"),
    [
        ("localhost:1", ""),
        ("no-such-host.invalid:1", ""),
        ("ftp://localhost", ""),
        ("user:secret@localhost:1", ""),
        ("ftp://user:secret@localhost:1", ""),
        ("localhost:1", "of two\nlines, secret"),
    ],
)
def test_no_server_is_an_error_without_secrets(server, token):
    headers = {"Authorization": token}
    with (
        RestClient(server, timeout=2, headers=headers) as client,
        pytest.raises(ServingError) as caught,
    ):
        client.answer(["1"])
    assert server.rpartition("@")[2] in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_timeout_ends_a_request():
    server = TFServing(delay=2.0)
    assert code_of(server, timeout=0.2) == "DEADLINE_EXCEEDED"
    assert len(server.batch_sizes) == 1


@pytest.mark.parametrize("gap", [0.1, 2.0])
def test_the_timeout_is_of_the_whole_response(gap):
    parts = (time.sleep(gap) or b" " for _ in range(30))
    with http_server(lambda *request: (200, parts)) as port:
        client = RestClient(f"127.0.0.1:{port}", timeout=0.4)
        start = time.monotonic()
        with client, pytest.raises(ServingError) as caught:
            client.answer(["1"])
        assert time.monotonic() - start < 1.5
    assert caught.value.code == "DEADLINE_EXCEEDED"


@pytest.mark.parametrize("name", ["solver", "a/versions/3", "a/labels/b"])
def test_a_version_and_headers_are_asked(name):
    asked = []
    headers = {"Authorization": "token\n"}
    with http_server(lambda path, _: (404, asked.append(path) or b"")) as port:
        client = RestClient(f"127.0.0.1:{port}", name, headers=headers)
        with client, pytest.raises(ServingError):
            client.answer(["1"])
    assert asked == [f"/v1/models/{name}:predicttoken"]


@pytest.mark.parametrize(
    "outputs",
    [
        {"logits": ["1"]},
        {"logits": ["1"], "status": ["OK"]},
        {"answers": ["1", "2"], "status": ["OK", "OK"]},
        {"answers": ["1"], "status": ["OK", "OK"]},
        {"answers": [1.0], "status": ["OK"]},
        {"answers": ["1"], "status": ["OK"], "log_probs": ["likely"]},
    ],
)
def test_another_models_outputs_are_refused(outputs):
    server = TFServing(lambda questions: outputs)
    assert code_of(server) == "MALFORMED"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"no JSON"),
        (200, b"[" * 200_000),
        (200, b"3"),
        (200, b'{"outputs": 3}'),
        (200, b'{"outputs": {"answers": 2, "status": ["OK"]}}'),
        (200, b'{"predictions": ["2"]}'),
        (
            200,
            b'{"outputs": {"answers": ["2"], "status": ["OK"], '
            b'"log_probs": [1%s]}}' % (b"0" * 400),
        ),
        (302, b""),
        (404, b"<html>"),
        (500, b"<html>"),
        (500, b'{"error": "%s"}' % (b"x" * 5000)),
    ],
)
def test_another_programs_response_is_an_error(status, body):
    with http_server(lambda path, content: (status, body)) as port:
        url = f"http://127.0.0.1:{port}/"
        with RestClient(url) as client, pytest.raises(ServingError) as caught:
            client.answer(["1 + 1"])
    assert url in str(caught.value)
    assert len(str(caught.value)) < 1500
    codes = {200: "MALFORMED", 404: "NOT_FOUND"}
    assert caught.value.code == codes.get(status, f"HTTP {status}")


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("timeout", x) for x in (0, math.nan, math.inf)), ("batch_size", 0)],
)
def test_invalid_arguments_are_refused(name, value):
    with refused(name):
        RestClient("localhost:8500", **{name: value})

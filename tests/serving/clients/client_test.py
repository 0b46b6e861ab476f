"""The clients of both protocols, over real sockets."""

import concurrent.futures
import contextlib
import math
import socket
import threading
import time

import grpc
import pytest
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc

from tests.serving import toy_model
from tests.serving.flaky_server import FlakyServer
from tests.serving.flaky_server import free_port
from tpt_keras.errors import UsageError
from tpt_keras.serving.clients.answer import Answer
from tpt_keras.serving.clients.grpc_client import GrpcClient
from tpt_keras.serving.clients.rest_client import RestClient
from tpt_keras.serving.clients.serving_error import ServingError
from tpt_keras.serving.local_server import LocalServer
from tpt_keras.serving.local_server.batching import Batching

CLIENTS = {"grpc": GrpcClient, "rest": RestClient}


@pytest.fixture(params=CLIENTS)
def protocol(request):
    return request.param


@pytest.fixture(scope="module")
def toy_server(tmp_path_factory):
    folder = toy_model.save(tmp_path_factory.mktemp("toy"), 7, "a ")
    with LocalServer(
        folder, port=0, rest_port=0, batching=Batching(3)
    ) as server:
        yield server


@pytest.fixture
def make_client(protocol, toy_server):
    """Makes clients, of the toy model's server if of no other."""
    clients = []
    addresses = {"grpc": toy_server.address, "rest": toy_server.rest_address}

    def make(server=addresses[protocol], **kwargs):
        clients.append(CLIENTS[protocol](server, **kwargs))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def ok(answer, log_prob=-0.5):
    return Answer(answer, log_prob, "OK")


def test_strings_and_bytes_of_any_kind(make_client):
    questions = [
        "1 + 1",
        b"1 + 2",
        "½漢",
        "½漢".encode(),
        "",
        b"\xff\xfe",
        "\udcff",
        "nothing\0",
        '"quoted"\n',
        "nan",
    ]
    assert make_client(max_batch_size=2).answer(questions) == [
        ok("a 1 + 1"),
        ok("a 1 + 2"),
        ok("a ½漢"),
        ok("a ½漢"),
        Answer("", -0.5, "EMPTY"),
        Answer("", -0.5, "INVALID_UTF8"),
        Answer("", -0.5, "INVALID_UTF8"),
        ok("a nothing\0"),
        ok('a "quoted"\n'),
        # What is no number is none, in both protocols.
        ok("a nan", log_prob=None),
    ]


@pytest.mark.parametrize("questions", ["1 + 1", b"1 + 1"])
def test_one_question_is_no_list(make_client, questions):
    with pytest.raises(TypeError, match="list"):
        make_client().answer(questions)


def test_no_questions_are_no_request(make_client):
    assert make_client("localhost:1").answer([]) == []


def test_chunks(protocol, make_client):
    flaky = FlakyServer()
    questions = [str(number) for number in range(10)]
    with flaky.serve(protocol) as address:
        answers = make_client(address, max_batch_size=3).answer(questions)
    assert flaky.batch_sizes == [3, 3, 3, 1]
    # This one gives no probabilities.
    assert answers == [ok(question, None) for question in questions]


def test_chunks_of_the_servers_limit(make_client):
    questions = [str(number) for number in range(10)]
    assert make_client(max_batch_size=3).answer(questions) == [
        ok(f"a {question}") for question in questions
    ]


def test_more_than_the_servers_limit(make_client):
    with pytest.raises(ServingError, match=r"fewer than 4 .*max_batch_size"):
        make_client(max_batch_size=4).answer(["1"] * 4)


def test_status(make_client):
    client = make_client()
    assert client.model_status() == {7: "AVAILABLE"}
    assert client.is_ready()


def test_a_state_of_a_newer_server():
    class ModelService(model_service_pb2_grpc.ModelServiceServicer):
        def GetModelStatus(self, request, context):  # noqa: N802
            response = get_model_status_pb2.GetModelStatusResponse()
            response.model_version_status.add(version=7, state=77)
            return response

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(
        ModelService(), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with GrpcClient(f"127.0.0.1:{port}") as client:
        assert client.model_status() == {7: "77"}
        assert not client.is_ready()
    server.stop(grace=None).wait()


@pytest.mark.parametrize("name", ["another", "a b?c", "ä"])
def test_unknown_model(make_client, name):
    client = make_client(model_name=name)
    assert not client.is_ready()
    with pytest.raises(ServingError, match=f"'{name[:1]}.*--model_name"):
        client.answer(["1"])


def test_no_server(make_client):
    client = make_client(f"localhost:{free_port()}", retries=0)
    assert not client.is_ready()
    with pytest.raises(
        ServingError, match=r"localhost:\d+ cannot .*tpt_keras serve.*refused"
    ):
        client.answer(["1"])


def test_no_host(make_client):
    client = make_client("no-such-host.invalid:8500", retries=0, timeout=5)
    with pytest.raises(ServingError, match=r"no-such-host\.invalid:8500"):
        client.answer(["1"])


def test_the_other_protocols_port(protocol, make_client, toy_server):
    other = {"grpc": toy_server.rest_address, "rest": toy_server.address}
    client = make_client(other[protocol], retries=0, timeout=5)
    with pytest.raises(ServingError, match="gRPC is usually at port 8500"):
        client.answer(["1"])


@pytest.mark.parametrize("failures", [1, 3])
def test_retries_what_is_unavailable(protocol, make_client, failures):
    flaky = FlakyServer(["UNAVAILABLE"] * failures)
    with flaky.serve(protocol) as address:
        assert make_client(address).answer(["1"]) == [ok("1", None)]
    assert len(flaky.batch_sizes) == failures + 1


@pytest.mark.parametrize("retries", [0, 2])
def test_gives_up(protocol, make_client, retries):
    flaky = FlakyServer(["UNAVAILABLE"] * 9)
    with (
        flaky.serve(protocol) as address,
        pytest.raises(ServingError, match=r"cannot be reached.*as told"),
    ):
        make_client(address, retries=retries).answer(["1"])
    assert len(flaky.batch_sizes) == retries + 1


def test_delays_grow(protocol, make_client):
    flaky = FlakyServer(["UNAVAILABLE"] * 9)
    with flaky.serve(protocol) as address:
        start = time.monotonic()
        with pytest.raises(ServingError):
            make_client(address, retries=4).answer(["1"])
    # 0.1, 0.2, 0.4 and 0.8 seconds; gRPC draws them, REST leaves out one.
    assert 0.5 < time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("failure", "part"),
    [
        ("INVALID_ARGUMENT", "INVALID_ARGUMENT"),
        ("INTERNAL", "INTERNAL|500"),
        ("NOT_FOUND", "--model_name"),
        ("RESOURCE_EXHAUSTED", "max_batch_size"),
    ],
)
def test_retries_nothing_else(protocol, make_client, failure, part):
    flaky = FlakyServer([failure])
    with (
        flaky.serve(protocol) as address,
        pytest.raises(ServingError, match=f"{address}.*({part}).*as told"),
    ):
        make_client(address).answer(["1"])
    assert len(flaky.batch_sizes) == 1


def test_a_server_that_starts_late(protocol, make_client):
    port = free_port()
    flaky = FlakyServer()
    result = []

    def ask():
        result.extend(make_client(f"127.0.0.1:{port}").answer(["1"]))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.15)
    with flaky.serve(protocol, port):
        thread.join()
    assert result == [ok("1", None)]


def test_deadline(protocol, make_client):
    flaky = FlakyServer(delay=1.5)
    with flaky.serve(protocol) as address:
        start = time.monotonic()
        with pytest.raises(
            ServingError, match=r"within 0\.3 seconds.*--timeout"
        ):
            make_client(address, timeout=0.3).answer(["1"])
        assert time.monotonic() - start < 1.2
        # It was not asked again.
        assert len(flaky.batch_sizes) == 1
        assert make_client(address, timeout=30).answer(["1"])


def test_deadline_of_connecting():
    """A host that says nothing is no host that refuses: not tried again."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        # Whoever comes after these is not let in.
        for _ in range(3):
            other = stack.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(address)
        start = time.monotonic()
        with (
            RestClient(f"127.0.0.1:{address[1]}", timeout=0.5) as client,
            pytest.raises(ServingError, match="--timeout"),
        ):
            client.answer(["1"])
        assert time.monotonic() - start < 1.5


@pytest.mark.parametrize("outputs", [("logits",), ("logits", "status")])
def test_a_model_that_answers_no_questions(protocol, make_client, outputs):
    with (
        FlakyServer(outputs=outputs).serve(protocol) as address,
        pytest.raises(ServingError, match="none of this project's"),
    ):
        make_client(address).answer(["1"])


def test_a_model_that_takes_no_questions(make_client, tmp_path, protocol):
    import tensorflow as tf

    module = tf.Module()
    module.call = tf.function(
        lambda x: {"y": x}, input_signature=[tf.TensorSpec((None,), name="x")]
    )
    tf.saved_model.save(module, str(tmp_path / "1"), signatures=module.call)
    with LocalServer(tmp_path, port=0, rest_port=0) as server:
        address = {"grpc": server.address, "rest": server.rest_address}
        with pytest.raises(ServingError, match="INVALID_ARGUMENT"):
            make_client(address[protocol]).answer(["1"])


@pytest.mark.parametrize(
    "arguments",
    [
        {"server": "localhost"},
        {"server": ":8500"},
        {"server": "http://localhost:8501"},
        {"server": "localhost:eight"},
        {"timeout": 0},
        {"timeout": math.nan},
        {"timeout": math.inf},
        {"timeout": 1e10},
        {"max_batch_size": 0},
        {"retries": -1},
        {"retries": 5},
    ],
)
def test_arguments_that_make_no_sense(protocol, arguments):
    [(name, value)] = arguments.items()
    with pytest.raises(UsageError, match=f"{name}.*{value}"):
        CLIENTS[protocol](**{"server": "localhost:8500", **arguments})

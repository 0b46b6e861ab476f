"""The local server with a model of this project, over both protocols."""

import threading
import time

import pytest

from tests.serving import toy_model
from tests.serving.flaky_server import free_port
from tpt_keras.errors import UsageError
from tpt_keras.serving.clients.grpc_client import GrpcClient
from tpt_keras.serving.clients.rest_client import RestClient
from tpt_keras.serving.clients.serving_error import ServingError
from tpt_keras.serving.local_server import LocalServer
from tpt_keras.serving.local_server.batching import Batching

QUESTIONS = [
    "What is the units digit of 23?",
    "1",
    "Solve 2*x + 3 = 0 for x.",
    "What is the tens digit of 31859?",
]


def clients(server, **kwargs):
    yield GrpcClient(server.address, **kwargs)
    yield RestClient(server.rest_address, **kwargs)


@pytest.mark.slow
def test_answers_as_the_model_does(version, untrained_model):
    expected = untrained_model.solve(QUESTIONS)
    assert len(set(expected)) > 2
    with LocalServer(version.parent, port=0, rest_port=0) as server:
        for client in clients(server):
            with client:
                answers = client.answer([*QUESTIONS, "", b"\xff", "%"])
            assert [a.answer for a in answers] == [*expected, "", "", ""]
            assert [a.status for a in answers[4:]] == [
                "EMPTY",
                "INVALID_UTF8",
                "UNKNOWN_CHARACTER",
            ]
            assert all(a.log_prob < 0 for a in answers[:4])


def test_takeover(tmp_path):
    toy_model.save(tmp_path, 1, "one ")
    with LocalServer(
        tmp_path, port=0, rest_port=0, poll_seconds=0.05
    ) as server:
        for number, prefix in ((2, "two "), (3, "three ")):
            toy_model.save(tmp_path, number, prefix)
            for client in clients(server):
                with client:
                    while client.model_status().get(number) != "AVAILABLE":
                        time.sleep(0.02)
                    assert client.answer(["x"])[0].answer == f"{prefix}x"


def test_model_name(tmp_path):
    toy_model.save(tmp_path, 1)
    with LocalServer(tmp_path, "another", port=0, rest_port=0) as server:
        for client in clients(server, model_name="another"):
            with client:
                assert client.answer(["x"])[0].answer == "x"


def test_ports_that_are_taken(tmp_path):
    toy_model.save(tmp_path, 1)
    port = free_port()
    with LocalServer(tmp_path, port=port, rest_port=0) as first:
        assert first.address == f"127.0.0.1:{port}"
        rest_port = int(first.rest_address.partition(":")[2])
        with pytest.raises(UsageError, match=f"{port}.*--port"):
            LocalServer(tmp_path, port=port, rest_port=0)
        with pytest.raises(UsageError, match=f"{rest_port}.*--rest_port"):
            LocalServer(tmp_path, port=0, rest_port=rest_port)
    # They are free at once when it has stopped.
    with LocalServer(tmp_path, port=port, rest_port=rest_port):
        pass


def test_stopping_what_was_not_started(tmp_path):
    toy_model.save(tmp_path, 1)
    server = LocalServer(tmp_path, port=0, rest_port=0)
    ports = [
        int(address.partition(":")[2])
        for address in (server.address, server.rest_address)
    ]
    # A thread, for it could hang.
    thread = threading.Thread(target=server.stop, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    # The ports are free; and stopping again does no harm.
    with LocalServer(tmp_path, port=ports[0], rest_port=ports[1]) as other:
        pass
    other.stop()


@pytest.mark.slow
def test_a_smaller_batch_than_the_export_was_made_for(version):
    with LocalServer(
        version.parent, port=0, rest_port=0, batching=Batching(32)
    ) as server:
        for client in clients(server, max_batch_size=32):
            with client:
                answers = client.answer(["1"] * 40)
            assert {answer.status for answer in answers} == {"OK"}


def test_stopping_waits_for_requests(tmp_path, monkeypatch):
    toy_model.save(tmp_path, 1)
    server = LocalServer(tmp_path, port=0, rest_port=0)
    is_running = threading.Semaphore(0)
    model = server._versions._current
    run = model.run

    def run_slowly(*args):
        is_running.release()
        time.sleep(0.5)
        return run(*args)

    monkeypatch.setattr(model, "run", run_slowly)
    results = []
    threads = []
    server.start()
    for client in clients(server):
        threads.append(
            threading.Thread(
                target=lambda c=client: results.append(c.answer(["x"])[0])
            )
        )
        threads[-1].start()
    for _ in threads:
        is_running.acquire()
    server.stop()
    for thread in threads:
        thread.join()
    assert [answer.answer for answer in results] == ["x", "x"]
    for client in clients(server, retries=0):
        with client, pytest.raises(ServingError, match="cannot be reached"):
            client.answer(["x"])

"""Serving a model and asking it, as the commands do."""

import signal

import pytest

from tests.experiments.command import assert_error
from tests.experiments.command import assert_refused
from tests.experiments.command import run_alone
from tests.experiments.serving_command import serve
from tests.serving import toy_model
from tests.serving.flaky_server import FlakyServer
from tests.serving.flaky_server import free_port
from tpt_keras.serving.local_server import LocalServer

QUESTION = "--question=What is the tens digit of 31859?"


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory):
    return toy_model.save(tmp_path_factory.mktemp("toy"), 1, "a ")


@pytest.fixture(scope="module")
def addresses(toy_folder):
    with LocalServer(toy_folder, port=0, rest_port=0) as server:
        yield {"grpc": server.address, "rest": server.rest_address}


@pytest.fixture(params=["grpc", "rest"])
def query(request, run, addresses):
    """Runs the command, for the server of its protocol if for no other."""

    def run_query(*arguments, server=addresses[request.param]):
        return run(
            "query",
            f"--server={server}",
            f"--protocol={request.param}",
            *arguments,
        )

    run_query.protocol = request.param
    return run_query


def test_query(query):
    result = query("--question=1 + 1", "--question=½")
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout == "a 1 + 1\na ½\n"


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("", ["''", "EMPTY", "ask something"]),
        ("\udcff", [r"'\udcff'", "INVALID_UTF8", "UTF-8"]),
    ],
)
def test_questions_without_an_answer(query, question, parts):
    assert_refused(query(f"--question={question}"), *parts)


def test_good_questions_among_others(query):
    result = query(
        "--question=1", "--question=", "--question=2", "--question=\udcff"
    )
    assert result.status == 2
    assert result.stdout == "a 1\n\na 2\n\n"
    assert_error(result, "2 of 4", "'' is empty", r"'\udcff' is not valid text")


def test_many_questions_without_an_answer(query):
    result = query(*["--question="] * 30)
    assert_refused(result, "30 of 30", "and 10 more")
    assert result.stderr.count("EMPTY") == 20


def test_unknown_model(query):
    result = query("--model_name=another", QUESTION)
    assert_refused(result, "'another'", "--model_name")


def test_no_server(query):
    server = f"localhost:{free_port()}"
    result = query(QUESTION, server=server)
    assert_refused(result, server, "tpt_keras serve", "--server")


def test_deadline(query):
    with FlakyServer(delay=1.0).serve(query.protocol) as address:
        result = query("--timeout=0.2", QUESTION, server=address)
    assert_refused(result, address, "0.2 seconds", "--timeout")


@pytest.mark.parametrize(
    ("name", "arguments", "parts"),
    [
        ("query", [], ["--server and --question"]),
        ("query", ["--server=localhost:1"], ["--question"]),
        ("query", ["--server=localhost", QUESTION], ["'localhost'", ":8500"]),
        (
            "query",
            ["--server=localhost:1", QUESTION, "--timeout=0"],
            ["timeout", "0"],
        ),
        ("query", ["--protocol=soap"], ["soap"]),
        ("query", ["--nothing=1"], ["nothing"]),
        ("query", ["something"], ["'something'"]),
        ("serve", [], ["--saved_model"]),
        ("serve", ["--saved_model=nothing"], ["'nothing'", "tpt_keras ex"]),
        ("serve", ["--saved_model=x", "--port=-1"], ["--port", "65535"]),
        ("serve", ["--saved_model=x", "--rest_port=99999"], ["--rest_port"]),
        ("serve", ["--nothing=1"], ["nothing"]),
        ("serve", ["something"], ["'something'"]),
    ],
)
def test_refusals(run, name, arguments, parts):
    assert_refused(run(name, *arguments), *parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "flag"), [("grpc", "--port"), ("rest", "--rest_port")]
)
def test_ports_that_are_taken(run, toy_folder, addresses, protocol, flag):
    port = addresses[protocol].partition(":")[2]
    ports = {"--port": 0, "--rest_port": 0, flag: port}
    # Of its port gRPC speaks itself, if this process has not silenced it.
    run = run_alone if protocol == "grpc" else run
    result = run(
        "serve",
        f"--saved_model={toy_folder}",
        *(f"{flag}={port}" for flag, port in ports.items()),
    )
    assert_refused(result, port, flag)


@pytest.mark.slow
def test_as_a_user_sees_it(run, saved_model, trained_model):
    questions = ["What is the tens digit of 31859?", "1 + 1"]
    # With Ctrl-C; the tests of many clients end theirs with SIGTERM.
    with serve(f"--saved_model={saved_model}", stop=signal.SIGINT) as addresses:
        for protocol, server in addresses.items():
            arguments = [f"--server={server}", f"--protocol={protocol}"]
            # gRPC has something to say of its own, where one lets it.
            run_it = run_alone if protocol == "grpc" else run
            asked = run_it(
                "query", *arguments, *(f"--question={q}" for q in questions)
            )
            assert (asked.status, asked.stderr) == (0, "")
            assert asked.stdout.splitlines() == trained_model.solve(questions)
        refused = run("query", *arguments, "--question=5 % 3")
        assert_refused(refused, "'5 % 3'", "vocabulary")
    # Nothing of gRPC's comes between, either, when it has stopped.
    refused = run_alone("query", f"--server={addresses['grpc']}", QUESTION)
    assert_refused(refused, addresses["grpc"], "experiments.serve")


def test_a_model_that_cannot_be_loaded(run, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_text("nothing")
    result = run("serve", f"--saved_model={tmp_path}")
    assert_refused(result, tmp_path, "tpt_keras export")

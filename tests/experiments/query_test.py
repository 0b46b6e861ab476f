"""The command `query`, against a server of this process."""

import subprocess
import sys

import pytest

from tests.experiments.command import ROOT
from tests.experiments.command import assert_error
from tests.experiments.command import assert_refused
from tests.serving.tf_serving import TFServing
from tests.serving.tf_serving import free_port

QUESTION = "--question=1 + 1"
STATUSES = {"": "EMPTY", "%": "UNKNOWN_CHARACTER"}


def predict(questions):
    return {
        "answers": ["" if q in STATUSES else f"a {q}" for q in questions],
        "status": [STATUSES.get(q, "OK") for q in questions],
    }


@pytest.fixture(params=["grpc", "rest"])
def query(request, run):
    def query(*arguments):
        with TFServing(predict).serve(request.param) as address:
            if request.param == "rest":
                address = f"http://{address}"
            return run("query", f"--server={address}", *arguments)

    return query


def test_every_question_gets_a_line(query):
    result = query(QUESTION, "--question=½")
    assert (result.status, result.stderr) == (0, "")
    assert result.stdout == "a 1 + 1\na ½\n"


def test_questions_without_an_answer_are_named(query):
    result = query(QUESTION, "--question=", "--question=%")
    assert result.status == 2
    assert result.stdout == "a 1 + 1\n\n\n"
    assert_error(result, "EMPTY", "'%'", "UNKNOWN_CHARACTER")


def test_many_questions_without_an_answer_are_shortened(query):
    result = query(*["--question="] * 30)
    assert_refused(result, "30")
    assert result.stderr.count("EMPTY") == 20


def test_an_unknown_model_is_refused(query):
    assert_refused(query(QUESTION, "--model_name=another"), "--model_name")


def test_a_missing_server_is_refused(run):
    server = f"localhost:{free_port()}"
    result = run("query", QUESTION, f"--server={server}", "--timeout=30")
    assert_refused(result, server, "--server")


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        ([], "--server"),
        (["--server=localhost:1"], "--question"),
        (["--server=localhost", QUESTION], "--server"),
        (["--server=http://localhost:1", "--protocol=grpc", QUESTION], "grpc"),
        (["--server=localhost:1", QUESTION, "--timeout=0"], "--timeout"),
        (["--protocol=soap"], "soap"),
    ],
)
def test_invalid_flags_are_refused(run, arguments, flag):
    assert_refused(run("query", *arguments), flag)


def test_invalid_flags_are_refused_before_heavy_imports():
    script = (
        "import sys\n"
        "from experiments import _cli, query\n"
        "try:\n"
        "    _cli.run(query.main)\n"
        "finally:\n"
        "    print([m for m in ('keras', 'tensorflow') if m in sys.modules])\n"
    )
    process = subprocess.run(
        [
            *(sys.executable, "-c", script),
            *("--server=http://localhost:1", "--protocol=grpc", QUESTION),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stdout) == (2, "[]\n"), process.stderr

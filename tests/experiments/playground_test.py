"""What the command refuses; the page has tests of its own."""

import socket

import pytest

from tests.experiments.command import assert_refused
from tests.playground.models import TINY
from tests.playground.models import make_playground


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["--model_dir"]),
        (["--model_dir=/nothing"], ["'/nothing'"]),
        (["--model_dir=/", "--port=65536"], ["--port", "65535"]),
        (["--model_dir=/", "--answers=0"], ["--answers"]),
    ],
)
def test_refused(run, arguments, parts):
    assert_refused(run("playground", *arguments), *parts)


@pytest.mark.slow
def test_a_port_that_is_taken(run, tmp_path):
    make_playground(tmp_path, **TINY)
    with socket.create_server(("localhost", 0)) as listener:
        port = listener.getsockname()[1]
        result = run("playground", f"--model_dir={tmp_path}", f"--port={port}")
    assert_refused(result, port, "--port")

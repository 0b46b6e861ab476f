"""TF Serving's configuration files agree with it and with each other."""

import contextlib
import inspect
import pathlib
import re
import subprocess

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

import tpt_keras.serving
from tests.serving.tf_serving import free_port
from tests.serving.tf_serving import http_server
from tpt_keras.serving import RestClient
from tpt_keras.serving.export import WARMUP_BATCH_SIZES

FOLDER = pathlib.Path(tpt_keras.serving.__file__).parent / "config"
NAME = "solver"
MODEL_PATH = f"/models/{NAME}"
MODEL_URL = f"/v1/models/{NAME}"
GRPC_PORT, REST_PORT = 8500, 8501


@pytest.fixture(scope="module")
def service():
    text = (FOLDER / "docker-compose.yml").read_text()
    return yaml.safe_load(text)["services"][NAME]


def test_the_model_is_at_its_mount():
    configs = text_format.Parse(
        (FOLDER / "model.config").read_text(),
        model_server_config_pb2.ModelServerConfig(),
    )
    [config] = configs.model_config_list.config
    assert config.name == NAME
    assert config.base_path == MODEL_PATH
    assert config.model_platform == "tensorflow"
    # The version before stays loaded, to go back to.
    assert config.model_version_policy.latest.num_versions == 2
    assert dict(config.version_labels) == {"stable": 1, "canary": 2}


def test_batching_has_known_fields():
    """The server does not start with an unknown one."""
    lines = [
        line
        for line in (FOLDER / "batching.config").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert lines.pop() == "pad_variable_length_inputs: false"
    values = dict(
        re.fullmatch(r"(\w+) \{ value: (\d+) \}", line).groups()
        for line in lines
    )
    assert int(values["max_batch_size"]) == max(WARMUP_BATCH_SIZES)
    assert set(values) == {
        "max_batch_size",
        "batch_timeout_micros",
        "max_enqueued_batches",
        "num_batch_threads",
    }


def test_the_server_reads_the_files_beside_it(service):
    flags = dict(argument.split("=") for argument in service["command"])
    # A request that a client no longer waits for is given up.
    timeout = int(inspect.signature(RestClient).parameters["timeout"].default)
    assert flags["--rest_api_timeout_in_ms"] == str(timeout * 1000)
    models, config = service["volumes"]
    assert models["target"] == MODEL_PATH
    assert config["source"] == "."  # relative to the file
    for flag in ("model_config", "batching_parameters", "monitoring_config"):
        path = pathlib.PurePosixPath(flags[f"--{flag}_file"])
        assert str(path.parent) == config["target"]
        assert (FOLDER / path.name).is_file()
    assert service["ports"] == [
        f"{port}:{port}" for port in (GRPC_PORT, REST_PORT)
    ]


def test_the_image_is_that_of_the_tested_api(service):
    constraints = (FOLDER.parents[2] / "constraints.txt").read_text()
    [version] = re.findall("^tensorflow-serving-api==(.*)$", constraints, re.M)
    image = f"tensorflow/serving:{version}"
    assert service["image"] == image
    comments = (FOLDER / "docker-compose.yml").read_text()
    assert set(re.findall(r"tensorflow/serving:[\w.]+", comments)) == {image}


@pytest.mark.parametrize("state", ["AVAILABLE", "LOADING", None])
def test_the_health_check_is_the_models_state(service, state):
    """Docker's command runs against an HTTP server."""
    asked = []

    def respond(path, _):
        asked.append(path)
        body = f'{{"model_version_status": [{{\n "state": "{state}"\n}}]}}'
        return 200, body.encode()

    kind, *command = service["healthcheck"]["test"]
    assert kind == "CMD"
    # Compose would replace a $.
    assert "$" not in command[-1]
    assert str(REST_PORT) in command[-1]
    with contextlib.ExitStack() as stack:
        port = free_port()
        if state:
            stack.enter_context(http_server(respond, port))
        command[-1] = command[-1].replace(str(REST_PORT), str(port))
        process = subprocess.run(command, capture_output=True, timeout=60)
    assert (process.returncode == 0) is (state == "AVAILABLE")
    assert asked == ([MODEL_URL] if state else [])

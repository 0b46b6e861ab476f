"""TF Serving's configuration files agree with it and with each other."""

import http.server
import pathlib
import re
import subprocess
import threading

import pytest
import yaml
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

import tpt_keras.serving
from tpt_keras.serving.export import WARMUP_BATCH_SIZES

FOLDER = pathlib.Path(tpt_keras.serving.__file__).parent / "config"
NAME = "solver"
MODEL_PATH = f"/models/{NAME}"
MODEL_URL = f"/v1/models/{NAME}"
GRPC_PORT, REST_PORT = 8500, 8501
METRICS_PATH = "/monitoring/prometheus/metrics"


def read_text_proto(name):
    """Reads a text proto whose message is not in TF Serving's package."""
    text = re.sub("#.*", "", (FOLDER / name).read_text())
    tokens = re.findall(r'"[^"]*"|\w+|\S', text)

    def read_message():
        fields = {}
        while tokens and tokens[0] != "}":
            field = tokens.pop(0)
            assert re.fullmatch(r"\w+", field), field
            separator = tokens.pop(0)
            if separator == "{":
                value = read_message()
                assert tokens.pop(0) == "}"
            else:
                assert separator == ":"
                value = yaml.safe_load(tokens.pop(0))
            fields.setdefault(field, []).append(value)
        return fields

    message = read_message()
    assert not tokens
    return message


def read_yaml(name):
    """Reads the documents of a file by their kinds."""
    documents = yaml.safe_load_all((FOLDER / name).read_text())
    return {document.get("kind"): document for document in documents}


@pytest.fixture(scope="module")
def compose_service():
    return read_yaml("docker-compose.yml")[None]["services"][NAME]


@pytest.fixture(scope="module")
def kubernetes():
    return read_yaml("kubernetes.yaml")


@pytest.fixture(scope="module")
def pod(kubernetes):
    return kubernetes["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod):
    [container] = pod["containers"]
    return container


@pytest.fixture(scope="module")
def predictor():
    service = read_yaml("kserve.yaml")["InferenceService"]
    # KServe serves a model under its service's name.
    assert service["metadata"]["name"] == NAME
    return service["spec"]["predictor"]


def test_the_model_is_at_its_mount():
    configs = text_format.Parse(
        (FOLDER / "model.config").read_text(),
        model_server_config_pb2.ModelServerConfig(),
    )
    [config] = configs.model_config_list.config
    assert config.name == NAME
    assert config.base_path == MODEL_PATH
    assert config.model_platform == "tensorflow"
    assert config.model_version_policy.latest.num_versions == 1


def test_batching_has_known_fields():
    batching = read_text_proto("batching.config")
    # Padding would be with the start symbol.
    assert batching.pop("pad_variable_length_inputs") == [False]
    assert batching["max_batch_size"] == [{"value": [max(WARMUP_BATCH_SIZES)]}]
    # The server does not start with an unknown name.
    assert set(batching) == {
        "max_batch_size",
        "batch_timeout_micros",
        "max_enqueued_batches",
        "num_batch_threads",
    }
    for [number] in batching.values():
        [value] = number["value"]
        assert set(number) == {"value"}
        assert isinstance(value, int)
        assert value > 0


def test_each_processor_has_a_batch_thread(container, predictor):
    [threads] = read_text_proto("batching.config")["num_batch_threads"]
    for resources in (container["resources"], predictor["model"]["resources"]):
        assert [int(resources["requests"]["cpu"])] == threads["value"]


def test_metrics_are_enabled():
    assert read_text_proto("monitoring.config") == {
        "prometheus_config": [{"enable": [True], "path": [METRICS_PATH]}]
    }


def test_servers_read_the_files_beside_them(
    compose_service, container, predictor
):
    files = {
        "--batching_parameters_file": "batching.config",
        "--monitoring_config_file": "monitoring.config",
    }
    files_and_model = {"--model_config_file": "model.config", **files}
    for arguments, expected in (
        (compose_service["command"], files_and_model),
        (container["args"], files_and_model),
        (predictor["model"]["args"], files),
    ):
        flags = dict(argument.split("=") for argument in arguments)
        assert flags.pop("--enable_batching") == "true"
        assert flags.pop("--tensorflow_intra_op_parallelism") == "1"
        assert flags == {
            flag: f"/config/{name}" for flag, name in expected.items()
        }
        for name in expected.values():
            assert (FOLDER / name).is_file()


def test_servers_have_one_version(compose_service, container, predictor):
    image = container["image"]
    assert re.fullmatch(r"tensorflow/serving:\d+\.\d+\.\d+", image)
    assert compose_service["image"] == image
    assert predictor["model"]["runtimeVersion"] == image.split(":")[1]
    comments = (FOLDER / "docker-compose.yml").read_text()
    assert set(re.findall(r"tensorflow/serving:[\w.]+", comments)) == {image}


def test_every_server_mounts_the_models_and_the_configuration(
    compose_service, pod, container, predictor, kubernetes
):
    models, config = compose_service["volumes"]
    assert models["target"] == MODEL_PATH
    # Relative to the file.
    assert (config["source"], config["target"]) == (".", "/config")
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert f"{mounts['models']['mountPath']}/{NAME}" == MODEL_PATH
    [mount] = predictor["model"]["volumeMounts"]
    assert mount["mountPath"] == mounts["config"]["mountPath"] == "/config"
    claim = kubernetes["PersistentVolumeClaim"]["metadata"]["name"]
    assert predictor["model"]["storageUri"] == f"pvc://{claim}/{NAME}"
    assert pod["volumes"] == [
        {"name": "models", "persistentVolumeClaim": {"claimName": claim}},
        *predictor["volumes"],
    ]


def test_ports_and_probes_agree(compose_service, container, kubernetes):
    assert compose_service["ports"] == [
        f"{port}:{port}" for port in (GRPC_PORT, REST_PORT)
    ]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"grpc": GRPC_PORT, "rest": REST_PORT}
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {
            "path": MODEL_URL,
            "port": "rest",
        }
    service = kubernetes["Service"]["spec"]
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == (
        ports
    )
    template = kubernetes["Deployment"]["spec"]["template"]["metadata"]
    assert service["selector"] == template["labels"]
    annotations = template["annotations"]
    assert annotations["prometheus.io/path"] == METRICS_PATH
    assert annotations["prometheus.io/port"] == str(REST_PORT)


@pytest.mark.parametrize(
    ("code", "state", "is_healthy"),
    [
        (200, "AVAILABLE", True),
        (200, "LOADING", False),
        (None, None, False),
    ],
)
def test_the_health_check_is_the_models_state(
    compose_service, code, state, is_healthy
):
    """Docker's command runs against an HTTP server."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = f'{{"model_version_status": [{{\n "state": "{state}"\n}}]}}'
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args):
            pass

    kind, *command = compose_service["healthcheck"]["test"]
    assert kind == "CMD"
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        port = server.server_port
        if code is None:
            server.server_close()
        else:
            threading.Thread(target=server.handle_request, daemon=True).start()
        # Compose would replace a $.
        assert "$" not in command[-1]
        assert str(REST_PORT) in command[-1]
        command[-1] = command[-1].replace(str(REST_PORT), str(port))
        status = subprocess.run(
            command, capture_output=True, timeout=60
        ).returncode
    assert (status == 0) is is_healthy
    assert asked == ([] if code is None else [MODEL_URL])

"""The REST interface of the local server, as TF Serving documents its own."""

import json

import hypothesis
import pytest
import requests
from hypothesis import strategies as st
from werkzeug.test import Client

from tests.serving import toy_model
from tpt_keras.serving.local_server import LocalServer
from tpt_keras.serving.local_server.batching import Batching
from tpt_keras.serving.local_server.model_versions import ModelVersions
from tpt_keras.serving.local_server.rest_api import RestApi


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy_model.save(tmp_path_factory.mktemp("toy"), 7, "a ")


@pytest.fixture(scope="module")
def url(folder):
    with LocalServer(
        folder, port=0, rest_port=0, batching=Batching(4)
    ) as server:
        yield f"http://{server.rest_address}"


@pytest.fixture
def predict(url):
    """Posts a request; gives its status and its content."""

    def post(content, place="/v1/models/solver"):
        response = requests.post(f"{url}{place}:predict", json=content)
        return respond(response)

    return post


def respond(response):
    assert response.headers["Content-Type"] == "application/json"
    return response.status_code, strict_json(response.text)


def strict_json(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON.")

    return json.loads(text, parse_constant=refuse)


ROWS = [
    {"answers": "a 1", "log_probs": -0.5, "status": "OK"},
    {"answers": "", "log_probs": -0.5, "status": "INVALID_UTF8"},
    {"answers": "a nan", "log_probs": None, "status": "OK"},
]
QUESTIONS = ["1", {"b64": "/w=="}, "nan"]


@pytest.mark.parametrize(
    "instances", [QUESTIONS, [{"questions": q} for q in QUESTIONS]]
)
@pytest.mark.parametrize("version", ["", "/versions/7"])
def test_rows(predict, instances, version):
    status, content = predict(
        {"instances": instances}, f"/v1/models/solver{version}"
    )
    assert (status, content) == (200, {"predictions": ROWS})


@pytest.mark.parametrize("inputs", [QUESTIONS, {"questions": QUESTIONS}])
def test_columns(predict, inputs):
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    content = {"inputs": inputs, "signature_name": "serving_default"}
    assert predict(content) == (200, {"outputs": columns})


def test_other_signatures(predict):
    assert predict({"signature_name": "n_best", "inputs": ["1"]}) == (
        200,
        {"outputs": {"answers": [["1", "1"]], "scores": [[-0.25, -0.25]]}},
    )
    assert predict({"signature_name": "echo", "instances": ["a", "½"]}) == (
        200,
        {"predictions": [{"b64": "YQ=="}, {"b64": "wr0="}]},
    )
    ids = {"encoder_token_ids": [[1, 2]], "decoder_token_ids": [[1, 2, 3]]}
    status, content = predict({"signature_name": "token_ids", "inputs": ids})
    assert status == 200
    assert content["outputs"] == [pytest.approx([0.4, 0.5, 0.6])]
    ids = {name: values[0] for name, values in ids.items()}
    status, content = predict(
        {"signature_name": "token_ids", "instances": [ids]}
    )
    assert content["predictions"] == [pytest.approx([0.4, 0.5, 0.6])]
    assert predict({"signature_name": "count", "inputs": ["1"]}) == (
        200,
        {"outputs": 1},
    )


def test_no_questions(predict):
    columns = {"answers": [], "log_probs": [], "status": []}
    assert predict({"inputs": []}) == (200, {"outputs": columns})


@pytest.mark.parametrize(
    ("content", "place", "status", "part"),
    [
        (
            {"inputs": ["1"]},
            "/v1/models/other",
            404,
            "Servable not found for request: Latest(other)",
        ),
        (
            {"inputs": ["1"]},
            "/v1/models/solver/versions/8",
            404,
            "Servable not found for request: Specific(solver, 8)",
        ),
        (
            {"inputs": ["1"], "signature_name": "no"},
            "/v1/models/solver",
            400,
            'Serving signature key "no" not found.',
        ),
        ({"inputs": [1]}, "/v1/models/solver", 400, "type: string"),
        ({"inputs": ["1"] * 5}, "/v1/models/solver", 400, "batch size 4"),
        (
            {"inputs": ["1"], "signature_name": "fail"},
            "/v1/models/solver",
            400,
            "No way.",
        ),
        (
            {"instances": ["1"], "signature_name": "count"},
            "/v1/models/solver",
            400,
            "batch sizes",
        ),
    ],
)
def test_errors(predict, content, place, status, part):
    assert predict(content, place)[0] == status
    assert list(predict(content, place)[1]) == ["error"]
    assert part in predict(content, place)[1]["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/v1/models"),
        ("POST", "/v1/models/solver"),
        ("POST", "/v1/models/solver:classify"),
        ("GET", "/v1/models/solver/versions/seven"),
        ("GET", "/v1/models/solver/versions/-7"),
        ("GET", f"/v1/models/solver/versions/{2**63}"),
        ("DELETE", "/v1/models/solver/versions/7"),
        ("POST", "/v1/models/solver:predict/"),
    ],
)
def test_malformed(url, method, path):
    response = requests.request(method, url + path, allow_redirects=False)
    status, content = respond(response)
    assert status == 400
    assert content["error"].startswith(f"Malformed request: {method} /")


def test_status(url):
    for version in ("", "/versions/7"):
        assert respond(requests.get(f"{url}/v1/models/solver{version}")) == (
            200,
            {
                "model_version_status": [
                    {
                        "version": "7",
                        "state": "AVAILABLE",
                        "status": {"error_code": "OK", "error_message": ""},
                    }
                ]
            },
        )
    for place, missing in (
        ("other", "any versions of model other"),
        ("solver/versions/1", "version 1 of model solver"),
    ):
        assert respond(requests.get(f"{url}/v1/models/{place}")) == (
            404,
            {"error": f"Could not find {missing}"},
        )


def test_metadata(url):
    for version in ("", "/versions/7"):
        status, content = respond(
            requests.get(f"{url}/v1/models/solver{version}/metadata")
        )
        assert status == 200
        assert content["model_spec"] == {
            "name": "solver",
            "signature_name": "",
            "version": "7",
        }
        signatures = content["metadata"]["signature_def"]["signature_def"]
        questions = signatures["serving_default"]["inputs"]["questions"]
        assert questions["dtype"] == "DT_STRING"
        assert questions["tensor_shape"] == {
            "dim": [{"size": "-1", "name": ""}],
            "unknown_rank": False,
        }
        assert set(signatures["serving_default"]["outputs"]) == set(ROWS[0])
    status, _ = respond(requests.get(f"{url}/v1/models/other/metadata"))
    assert status == 404


@pytest.fixture(scope="module")
def web(folder):
    """The application without its server, which hides no exception."""
    return Client(RestApi(ModelVersions("solver", folder, Batching(4))))


KEYS = st.sampled_from(
    ["inputs", "instances", "signature_name", "questions", "b64"]
) | st.text(max_size=3)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["n_best", "echo", "token_ids", "fail", "/w==", "\ud800"])
)
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=12,
)
# As good as a request can be until its values are looked at.
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "inputs": ANY_JSON,
        "instances": ANY_JSON,
        "signature_name": st.sampled_from(
            ["n_best", "echo", "count", "token_ids", "fail"]
        )
        | ANY_JSON,
    },
)
QUICKLY = hypothesis.settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)


def check(response):
    assert response.status_code in (200, 400, 404)
    content = strict_json(response.text)
    assert ("error" in content) == (response.status_code != 200)


@pytest.mark.slow
@QUICKLY
@hypothesis.given(content=ANY_JSON | REQUESTS)
def test_any_json(web, content):
    check(web.post("/v1/models/solver:predict", data=json.dumps(content)))


@QUICKLY
@hypothesis.given(body=st.binary() | st.text().map(str.encode))
def test_any_body(web, body):
    check(web.post("/v1/models/solver:predict", data=body))


@QUICKLY
@hypothesis.given(path=st.text(st.characters(codec="utf-8")))
def test_any_path(web, path):
    for place in ("/", "/v1/models/", "/v1/models/solver/versions/"):
        # Put where the application finds it, encoded as WSGI wants it: the
        # client would take the path for part of a URL, and refuse some.
        path_info = (place + path).encode().decode("latin-1")
        check(web.get("/", environ_overrides={"PATH_INFO": path_info}))


@pytest.mark.parametrize("depth", [10, 100, 500, 950, 990, 100_000])
def test_any_depth(web, depth):
    for opening, closing in (("[", "]"), ('{"inputs":', "}")):
        body = '{"inputs":' + opening * depth + "1" + closing * depth + "}"
        check(web.post("/v1/models/solver:predict", data=body))

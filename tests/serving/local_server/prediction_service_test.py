"""The gRPC services of the local server."""

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from tests.bounded import bounded
from tests.serving import toy_model
from tpt_keras.serving.local_server import LocalServer
from tpt_keras.serving.local_server.batching import Batching


@pytest.fixture(scope="module")
def channel(tmp_path_factory):
    folder = toy_model.save(tmp_path_factory.mktemp("toy"), 7, "a ")
    with (
        LocalServer(
            folder, port=0, rest_port=0, batching=Batching(4)
        ) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        yield channel


@pytest.fixture
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def make_request(inputs, **model_spec):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model_spec.pop("name", "solver")
    if "version" in model_spec:
        request.model_spec.version.value = model_spec.pop("version")
    for key, value in model_spec.items():
        setattr(request.model_spec, key, value)
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def values(response):
    return {
        name: tf.make_ndarray(tensor).tolist()
        for name, tensor in response.outputs.items()
    }


@pytest.mark.parametrize("model_spec", [{}, {"version": 7}])
def test_predict(stub, model_spec):
    response = stub.Predict(
        make_request({"questions": [b"1", b"\xff"]}, **model_spec)
    )
    assert values(response) == {
        "answers": [b"a 1", b""],
        "log_probs": [-0.5, -0.5],
        "status": [b"OK", b"INVALID_UTF8"],
    }
    assert response.model_spec.name == "solver"
    assert response.model_spec.version.value == 7
    assert response.model_spec.signature_name == "serving_default"


def test_other_signatures(stub):
    request = make_request({"questions": [b"1"]}, signature_name="n_best")
    response = stub.Predict(request)
    assert values(response) == {
        "answers": [[b"1", b"1"]],
        "scores": [[-0.25, -0.25]],
    }
    assert response.model_spec.signature_name == "n_best"
    request = make_request(
        {"encoder_token_ids": [[1]], "decoder_token_ids": [[1, 2]]},
        signature_name="token_ids",
    )
    assert values(stub.Predict(request)) == {
        "logits": [pytest.approx([0.2, 0.3])]
    }


def test_output_filter(stub):
    request = make_request({"questions": [b"1"]})
    request.output_filter.append("status")
    assert values(stub.Predict(request)) == {"status": [b"OK"]}
    request.output_filter.append("scores")
    with pytest.raises(grpc.RpcError) as error:
        stub.Predict(request)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "answers,log_probs,status" in error.value.details()


@pytest.mark.parametrize(
    ("inputs", "model_spec", "code", "part"),
    [
        ({}, {"name": "other"}, "NOT_FOUND", "Latest(other)"),
        ({}, {"version": 8}, "NOT_FOUND", "Specific(solver, 8)"),
        ({}, {"version_label": "stable"}, "INVALID_ARGUMENT", "stable"),
        ({}, {"signature_name": "no"}, "FAILED_PRECONDITION", '"no" not found'),
        ({}, {}, "INVALID_ARGUMENT", "required: {questions}"),
        (
            {"questions": [b"1"], "hints": [b"1"]},
            {},
            "INVALID_ARGUMENT",
            "Sent extra: {hints}",
        ),
        ({"questions": [1]}, {}, "INVALID_ARGUMENT", "expected string"),
        ({"questions": b"1"}, {}, "INVALID_ARGUMENT", "shape [], expected"),
        ({"questions": [[b"1"]]}, {}, "INVALID_ARGUMENT", "shape [1, 1]"),
        ({"questions": [b"1"] * 5}, {}, "INVALID_ARGUMENT", "batch size 4"),
        (
            {"questions": [b"1"]},
            {"signature_name": "fail"},
            "INVALID_ARGUMENT",
            "No way.",
        ),
    ],
)
def test_errors(stub, inputs, model_spec, code, part):
    with pytest.raises(grpc.RpcError) as error:
        stub.Predict(make_request(inputs, **model_spec))
    assert error.value.code() == grpc.StatusCode[code]
    assert part in error.value.details()
    # And the next one is answered.
    assert stub.Predict(make_request({"questions": [b"1"]}))


def test_what_is_no_tensor(stub):
    request = make_request({"questions": [b"1"]})
    tensor = request.inputs["questions"]
    # Two values where there is room for one.
    tensor.string_val.append(b"2")
    with pytest.raises(grpc.RpcError) as error:
        stub.Predict(request)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    tensor.dtype = 0
    with pytest.raises(grpc.RpcError) as error:
        stub.Predict(request)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("signature_name", "names", "shape"),
    [
        ("serving_default", ["questions"], [10**9]),
        ("token_ids", ["encoder_token_ids", "decoder_token_ids"], [0, 10**9]),
    ],
)
def test_a_tensor_that_is_larger_than_its_message(
    stub, signature_name, names, shape
):
    request = make_request({}, signature_name=signature_name)
    for name in names:
        tensor = request.inputs[name]
        is_text = name == "questions"
        tensor.dtype = (tf.string if is_text else tf.int32).as_datatype_enum
        for size in shape:
            tensor.tensor_shape.dim.add(size=size)
    with bounded(), pytest.raises(grpc.RpcError) as error:
        stub.Predict(request)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "no tensor" in error.value.details()
    assert stub.Predict(make_request({"questions": [b"1"]}))


def test_metadata(stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "solver"
    with pytest.raises(grpc.RpcError) as error:
        stub.GetModelMetadata(request)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    request.metadata_field.append("signature_def")
    response = stub.GetModelMetadata(request)
    assert response.model_spec.version.value == 7
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    assert set(signatures.signature_def) >= {"serving_default", "token_ids"}
    questions = signatures.signature_def["serving_default"].inputs["questions"]
    assert questions.dtype == tf.string.as_datatype_enum


def test_status(channel):
    stub = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "solver"
    [status] = stub.GetModelStatus(request).model_version_status
    assert status.version == 7
    assert status.state == status.AVAILABLE
    request.model_spec.version.value = 8
    with pytest.raises(grpc.RpcError) as error:
        stub.GetModelStatus(request)
    assert error.value.code() == grpc.StatusCode.NOT_FOUND

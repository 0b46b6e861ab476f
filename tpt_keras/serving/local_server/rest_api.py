import json

import grpc
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import model_pb2
from werkzeug import Request
from werkzeug import Response
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map
from werkzeug.routing import Rule

from tpt_keras.serving.local_server.json_tensors import format_outputs
from tpt_keras.serving.local_server.json_tensors import parse_body
from tpt_keras.serving.local_server.json_tensors import parse_inputs
from tpt_keras.serving.local_server.request_error import RequestError

# As TF Serving translates them.
_HTTP_STATUSES = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNAVAILABLE: 503,
}
_MODEL = "/v1/models/<name>"
_VERSION = _MODEL + f"/versions/<int(max={2**63 - 1}):version>"


class RestApi:
    """TF Serving's REST interface, as a WSGI application.

    Args:
        versions: A `ModelVersions`.
    """

    def __init__(self, versions):
        self._versions = versions
        self._urls = Map(
            [
                Rule(place + suffix, endpoint=handle, methods=[method])
                for place in (_MODEL, _VERSION)
                for suffix, method, handle in (
                    (":predict", "POST", self._predict),
                    ("", "GET", self._status),
                    ("/metadata", "GET", self._metadata),
                )
            ],
            merge_slashes=False,
        )

    def __call__(self, environ, start_response):
        request = Request(environ)
        try:
            content, status = self._respond(request), 200
        except RequestError as error:
            content = {"error": str(error)}
            status = _HTTP_STATUSES.get(error.code, 500)
        response = Response(
            json.dumps(content, allow_nan=False),
            status,
            mimetype="application/json",
        )
        return response(environ, start_response)

    def _respond(self, request):
        try:
            handle, place = self._urls.bind_to_environ(request.environ).match()
            body = request.get_data()
        except HTTPException:
            raise RequestError.invalid(
                f"Malformed request: {request.method} {request.path}"
            ) from None
        model_spec = model_pb2.ModelSpec(name=place["name"])
        if "version" in place:
            model_spec.version.value = place["version"]
        return handle(model_spec, body)

    def _predict(self, model_spec, body):
        try:
            content = parse_body(body)
            signature_name = content.get("signature_name", "")
            model = self._versions.get(model_spec)
            inputs, is_row = parse_inputs(
                content, model.input_specs(signature_name)
            )
            outputs = model.run(signature_name, inputs)
            return format_outputs(outputs, is_row)
        except ValueError as error:
            raise RequestError.invalid(str(error)) from None

    def _status(self, model_spec, body):
        return _to_dict(self._versions.status(model_spec))

    def _metadata(self, model_spec, body):
        model = self._versions.get(model_spec)
        model_spec.version.value = model.version
        signatures = get_model_metadata_pb2.SignatureDefMap(
            signature_def=model.signature_defs
        )
        return {
            "model_spec": _to_dict(model_spec),
            "metadata": {"signature_def": _to_dict(signatures)},
        }


def _to_dict(message):
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )

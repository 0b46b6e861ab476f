import contextlib

import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from tpt_keras.serving.clients.tensor_protos import parse_tensor
from tpt_keras.serving.local_server.request_error import RequestError


class PredictionService(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """TF Serving's gRPC services, as far as questions need them.

    Args:
        versions: A `ModelVersions`.
    """

    def __init__(self, versions):
        self._versions = versions

    def add_to(self, server):
        """Makes a server offer both services.

        Args:
            server: A `grpc.Server`.
        """
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            self, server
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(self, server)

    def Predict(self, request, context):  # noqa: N802
        with _refusing(context):
            model = self._versions.get(request.model_spec)
            signature_name = request.model_spec.signature_name
            outputs = model.run(signature_name, _arrays(request.inputs))
            response = predict_pb2.PredictResponse()
            response.model_spec.name = self._versions.name
            response.model_spec.version.value = model.version
            response.model_spec.signature_name = (
                signature_name or "serving_default"
            )
            for name in _output_names(request, outputs):
                response.outputs[name].CopyFrom(
                    tf.make_tensor_proto(outputs[name])
                )
            return response

    def GetModelMetadata(self, request, context):  # noqa: N802
        with _refusing(context):
            if list(request.metadata_field) != ["signature_def"]:
                raise RequestError.invalid(
                    "The one metadata_field that is supported is signature_def"
                )
            model = self._versions.get(request.model_spec)
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            response.model_spec.name = self._versions.name
            response.model_spec.version.value = model.version
            response.metadata["signature_def"].Pack(
                get_model_metadata_pb2.SignatureDefMap(
                    signature_def=model.signature_defs
                )
            )
            return response

    def GetModelStatus(self, request, context):  # noqa: N802
        with _refusing(context):
            return self._versions.status(request.model_spec)


@contextlib.contextmanager
def _refusing(context):
    try:
        yield
    except RequestError as error:
        context.abort(error.code, str(error))


def _arrays(tensors):
    arrays = {}
    for name, tensor in tensors.items():
        try:
            arrays[name] = parse_tensor(tensor)
        except ValueError as error:
            raise RequestError.invalid(
                f"input {name} is no tensor: {error}"
            ) from None
    return arrays


def _output_names(request, outputs):
    for name in request.output_filter:
        if name not in outputs:
            raise RequestError.invalid(
                f"output tensor alias not found in signature: {name} Outputs "
                f"expected to be in the set {{{','.join(sorted(outputs))}}}."
            )
    return request.output_filter or outputs

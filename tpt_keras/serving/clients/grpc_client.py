import json

import grpc
import tensorflow as tf
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from tpt_keras.serving.clients.client import Client
from tpt_keras.serving.clients.tensor_protos import parse_tensor

_STATES = {
    number: name
    for name, number in get_model_status_pb2.ModelVersionStatus.State.items()
}


class GrpcClient(Client):
    """Asks a TF Serving over gRPC.

    See `Client` for the arguments and methods.

    Example:

    ```python
    with GrpcClient("localhost:8500") as client:
        [answer] = client.answer(["What is the tens digit of 31859?"])
    ```
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._channel = grpc.insecure_channel(
            self.server, options=_channel_options(self.retries)
        )
        self._prediction_service = (
            prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        )
        self._model_service = model_service_pb2_grpc.ModelServiceStub(
            self._channel
        )

    def close(self):
        self._channel.close()

    def model_status(self):
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = self.model_name
        response = self._call(self._model_service.GetModelStatus, request)
        return {
            # One of a newer server's has a number alone.
            status.version: _STATES.get(status.state, str(status.state))
            for status in response.model_version_status
        }

    def _predict(self, questions):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = self.model_name
        request.inputs["questions"].CopyFrom(
            tf.make_tensor_proto(questions, tf.string)
        )
        response = self._call(self._prediction_service.Predict, request)
        return {
            name: self._values(tensor)
            for name, tensor in response.outputs.items()
        }

    def _values(self, tensor):
        try:
            values = parse_tensor(tensor).tolist()
            if tensor.dtype == tf.string.as_datatype_enum:
                values = [value.decode() for value in values]
        # Of another rank, or no text.
        except (AttributeError, TypeError, ValueError) as error:
            raise self._error("MALFORMED", error) from None
        return values

    def _call(self, method, request):
        try:
            return method(request, timeout=self.timeout)
        except grpc.RpcError as error:
            raise self._error(error.code().name, error.details()) from None
        except ValueError as error:
            # The channel is closed.
            raise self._error("UNAVAILABLE", error) from None


def _channel_options(retries):
    if not retries:
        return [("grpc.enable_retries", 0)]
    retry_policy = {
        "maxAttempts": retries + 1,
        "initialBackoff": "0.1s",
        "maxBackoff": "2s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"],
    }
    every_method = [{}]
    service_config = {
        "methodConfig": [{"name": every_method, "retryPolicy": retry_policy}]
    }
    return [
        ("grpc.service_config", json.dumps(service_config)),
        # Or a lost connection is mended later than the last attempt is made.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]

import pathlib

import grpc
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from tpt_keras.files import plain_path
from tpt_keras.serving.checksums import check_checksums
from tpt_keras.serving.clients.tensor_protos import parse_tensor
from tpt_keras.serving.local_server.request_error import RequestError
from tpt_keras.serving.versions import WARMUP_ASSET

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class ServedModel:
    """One version of a model, loaded to answer requests of many threads.

    Requests that wait at the same time are run as one batch, with the op that
    TF Serving's own batching is made of: thirty questions take little longer
    than one.

    Args:
        path: A SavedModel, whose folder's name is its version's number.
        batching: A `Batching`.

    Raises:
        UsageError: If its files are not what was exported. A damaged one that
            was exported without checksums raises nearly anything.
    """

    def __init__(self, path, batching):
        path = pathlib.Path(path)
        check_checksums(path)
        self.version = int(path.name)
        # The signatures alone do not keep the variables alive.
        self._loaded = tf.saved_model.load(str(plain_path(path)))
        self._functions = {
            name: batching.batched(signature)
            for name, signature in self._loaded.signatures.items()
        }
        saved_model = saved_model_pb2.SavedModel.FromString(
            (path / "saved_model.pb").read_bytes()
        )
        self.signature_defs = dict(saved_model.meta_graphs[0].signature_def)
        self._warm_up(path / WARMUP_ASSET, batching.max_batch_size)

    def _warm_up(self, path, max_batch_size):
        """Replays the requests that came with the model, as TF Serving does.

        Not those that nobody could make here, for they are too large.
        """
        if not path.is_file():
            return
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(record)
            request = log.predict_log.request
            inputs = {
                name: parse_tensor(tensor)
                for name, tensor in request.inputs.items()
            }
            if all(
                rows <= max_batch_size
                for array in inputs.values()
                for rows in array.shape[:1]
            ):
                self.run(request.model_spec.signature_name, inputs)

    def input_specs(self, signature_name):
        """The inputs of a signature.

        Args:
            signature_name: The signature; if empty, the default one.

        Returns:
            Dict of names to `tf.TensorSpec`s.

        Raises:
            RequestError: If there is no such signature.
        """
        name = signature_name or "serving_default"
        if name not in self._functions:
            raise RequestError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f'Serving signature key "{name}" not found.',
            )
        return self._loaded.signatures[name].structured_input_signature[1]

    def run(self, signature_name, inputs):
        """Computes the outputs of a signature.

        Args:
            signature_name: The signature; if empty, the default one.
            inputs: Dict of names to arrays.

        Returns:
            Dict of names to arrays.

        Raises:
            RequestError: If there is no such signature, or the inputs are not
                those that it takes.
        """
        specs = self.input_specs(signature_name)
        _check_inputs(inputs, specs)
        function = self._functions[signature_name or "serving_default"]
        try:
            outputs = function(
                **{
                    name: tf.constant(array, specs[name].dtype)
                    for name, array in inputs.items()
                }
            )
        except tf.errors.OpError as error:
            # Its first lines tell where in the graph, the last ones what.
            message = error.message.partition("\t [[")[0].strip()
            raise RequestError(
                _CODES[error.error_code], message.rpartition("\n")[2]
            ) from None
        return {name: output.numpy() for name, output in outputs.items()}


def _check_inputs(inputs, specs):
    if set(inputs) != set(specs):
        raise RequestError.invalid(
            f"input size does not match signature: {len(inputs)}!={len(specs)} "
            f"len({{{_list(inputs)}}}) != len({{{_list(specs)}}}). "
            f"Sent extra: {{{_list(set(inputs) - set(specs))}}}. "
            f"Missing but required: {{{_list(set(specs) - set(inputs))}}}."
        )
    for name, spec in specs.items():
        array = inputs[name]
        if tf.as_dtype(array.dtype) != spec.dtype:
            raise RequestError.invalid(
                f"input {name} has type {tf.as_dtype(array.dtype).name}, "
                f"expected {spec.dtype.name}."
            )
        if not spec.shape.is_compatible_with(array.shape):
            raise RequestError.invalid(
                f"input {name} has shape {list(array.shape)}, expected "
                f"{spec.shape.as_list()}."
            )


def _list(names):
    return ",".join(sorted(names))

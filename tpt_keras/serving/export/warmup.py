"""Requests that a server makes to itself before it says that it is ready."""

import pathlib

import tensorflow as tf

from tpt_keras.serving.versions import WARMUP_ASSET

# Up to the max_batch_size of config/batching.config.
WARMUP_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
_QUESTION = "Let z(k) = -3*k + 5. What is the tens digit of z(-31)?"


def write_warmup_requests(folder):
    """Writes requests of small and large batches.

    TF Serving replays them when it loads a version, so that no user waits for
    what is done only once.

    Args:
        folder: The version, whose `assets.extra` is there.
    """
    from tensorflow_serving.apis import predict_pb2
    from tensorflow_serving.apis import prediction_log_pb2

    path = str(pathlib.Path(folder) / WARMUP_ASSET)
    with tf.io.TFRecordWriter(path) as writer:
        for batch_size in WARMUP_BATCH_SIZES:
            request = predict_pb2.PredictRequest()
            request.model_spec.signature_name = "serving_default"
            request.inputs["questions"].CopyFrom(
                tf.make_tensor_proto([_QUESTION] * batch_size)
            )
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())

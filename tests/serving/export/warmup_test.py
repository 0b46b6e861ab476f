import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tpt_keras.serving.export.warmup import WARMUP_BATCH_SIZES
from tpt_keras.serving.export.warmup import write_warmup_requests


def read_requests(folder):
    """The requests that TF Serving finds in a version."""
    # The name that it looks for.
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    requests = []
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        requests.append(log.predict_log.request)
    return requests


def batch_sizes(requests):
    return [
        request.inputs["questions"].tensor_shape.dim[0].size
        for request in requests
    ]


@pytest.mark.parametrize("kind", ["version", "options_version"])
def test_every_batch_size_is_answered(request, kind):
    """As the server does it: each request is put to the graph."""
    version = request.getfixturevalue(kind)
    served = request.getfixturevalue(kind.replace("version", "served"))
    requests = read_requests(version)
    assert batch_sizes(requests) == list(WARMUP_BATCH_SIZES)
    for warmup in requests:
        # Of whatever model and version it lies with.
        assert warmup.model_spec.name == ""
        assert warmup.model_spec.WhichOneof("version_choice") is None
        inputs = {
            name: tf.make_ndarray(tensor)
            for name, tensor in warmup.inputs.items()
        }
        assert set(inputs) == {"questions"}
        outputs = served(warmup.model_spec.signature_name, **inputs)
        assert set(outputs) == {"answers", "log_probs", "status"}
        assert set(outputs["status"]) == {b"OK"}


def test_the_signature_is_the_default(tmp_path):
    (tmp_path / "assets.extra").mkdir()
    write_warmup_requests(tmp_path)
    for request in read_requests(tmp_path):
        assert request.model_spec.signature_name == "serving_default"


def test_written_again_it_is_the_same(tmp_path):
    (tmp_path / "assets.extra").mkdir()
    for _ in range(2):
        write_warmup_requests(str(tmp_path))
        assert len(read_requests(tmp_path)) == len(WARMUP_BATCH_SIZES)
        # The server refuses more.
        assert len(WARMUP_BATCH_SIZES) <= 1000

"""SavedModels as their clients see them, in Python and through the C API."""

import base64
import json
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tests.serving import c_api_runner


class Served:
    """The signatures of a SavedModel.

    Args:
        path: The SavedModel.
    """

    def __init__(self, path):
        # A signature alone does not keep the variables alive.
        self._loaded = tf.saved_model.load(str(path))

    def __call__(self, name, **inputs):
        """Returns the outputs of a signature as arrays."""
        outputs = self._loaded.signatures[name](
            **{key: tf.constant(value) for key, value in inputs.items()}
        )
        return {key: value.numpy() for key, value in outputs.items()}

    def ask(self, questions):
        """Returns the answers and statuses of strings or bytes."""
        outputs = self(
            "serving_default", questions=tf.constant(questions, tf.string)
        )
        assert set(outputs) == {"answers", "log_probs", "status"}
        answers, status = (
            [value.decode() for value in outputs[name]]
            for name in ("answers", "status")
        )
        is_ok = np.array([value == "OK" for value in status], bool)
        assert outputs["log_probs"].dtype == "float32"
        assert np.all(outputs["log_probs"][is_ok] < 0.0)
        assert np.all(np.isfinite(outputs["log_probs"]))
        assert not np.any(outputs["log_probs"][~is_ok])
        return answers, status


def signature_defs(path):
    """Returns the signatures that a server reads from a SavedModel."""
    saved_model = saved_model_pb2.SavedModel.FromString(
        (pathlib.Path(path) / "saved_model.pb").read_bytes()
    )
    [meta_graph] = saved_model.meta_graphs
    # Without the one that initializes tables.
    return {
        name: signature
        for name, signature in meta_graph.signature_def.items()
        if name != "__saved_model_init_op"
    }


def _to_json(array):
    array = np.asarray(array)
    values = array.flatten().tolist()
    if array.dtype == object:
        values = [base64.b64encode(value).decode() for value in values]
    return {
        "dtype": "string" if array.dtype == object else array.dtype.name,
        "shape": array.shape,
        "values": values,
    }


def _from_json(dtype, shape, values):
    if dtype == "string":
        values, dtype = [base64.b64decode(value) for value in values], object
    return np.array(values, dtype).reshape(shape)


def run_without_python(path, *requests, has_xla=False):
    """Runs signatures through TensorFlow's C API, without its Python.

    Args:
        path: The SavedModel.
        *requests: Pairs of a signature's name and its input arrays.
        has_xla: Whether XLA may compile. In TF Serving it may not.

    Returns:
        For each request a dict of arrays, or `{"error": (where, message)}`.
    """
    signatures = signature_defs(path)
    job = {
        "saved_model": str(path),
        "has_xla": has_xla,
        "runs": [
            {
                "inputs": {
                    signatures[name].inputs[key].name: _to_json(value)
                    for key, value in inputs.items()
                },
                "outputs": {
                    key: tensor.name
                    for key, tensor in signatures[name].outputs.items()
                },
            }
            for name, inputs in requests
        ],
    }
    process = subprocess.run(
        # Isolated: without this folder and PYTHONPATH.
        [sys.executable, "-I", c_api_runner.__file__],
        cwd=pathlib.Path(path).anchor,
        input=json.dumps(job),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr
    results = json.loads(process.stdout)["results"]
    return [
        {"error": (result["error"][0], result["error"][2])}
        if "error" in result
        else {key: _from_json(**value) for key, value in result.items()}
        for result in results
    ]

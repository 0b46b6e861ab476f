"""A SavedModel as those see it who ask it."""

import pathlib

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2


class Served:
    """The signatures of a SavedModel.

    Args:
        path: The SavedModel.
    """

    def __init__(self, path):
        # Kept, for a signature alone does not keep the variables alive.
        self._loaded = tf.saved_model.load(str(path))

    def __call__(self, name, **inputs):
        """Outputs of a signature, as arrays."""
        outputs = self._loaded.signatures[name](
            **{key: tf.constant(value) for key, value in inputs.items()}
        )
        return {key: value.numpy() for key, value in outputs.items()}

    def ask(self, questions):
        """Answers and statuses of questions: strings, or bytes of any kind."""
        # A type, for there may be none.
        outputs = self(
            "serving_default", questions=tf.constant(questions, tf.string)
        )
        assert set(outputs) == {"answers", "log_probs", "status"}
        answers, status = (
            [value.decode() for value in outputs[name]]
            for name in ("answers", "status")
        )
        # Sure of nothing, and nothing said of what is not answered.
        is_ok = np.array([value == "OK" for value in status], bool)
        assert outputs["log_probs"].dtype == "float32"
        assert np.all(outputs["log_probs"][is_ok] < 0.0)
        assert np.all(np.isfinite(outputs["log_probs"]))
        assert not np.any(outputs["log_probs"][~is_ok])
        return answers, status


def signature_defs(path):
    """The signatures that a server reads from a SavedModel, by name."""
    saved_model = saved_model_pb2.SavedModel.FromString(
        (pathlib.Path(path) / "saved_model.pb").read_bytes()
    )
    [meta_graph] = saved_model.meta_graphs
    # Keras's, and one that TensorFlow initializes tables with.
    return {
        name: signature
        for name, signature in meta_graph.signature_def.items()
        if name != "__saved_model_init_op"
    }

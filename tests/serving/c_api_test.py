"""A server in C++ can run an export: no Python, no XLA, no custom ops.

The tests call TensorFlow's C API, as TF Serving does, in a process without
TensorFlow's Python and without this project (`c_api_runner.py`).
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.serving.conftest import SUMS
from tests.serving.served import Served
from tests.serving.served import run_without_python
from tpt_keras.serving.export_graph import check_graph

pytestmark = pytest.mark.slow

GOOD = [text.encode() for text in SUMS[:6]]
BAD = [b"", b"What is \xff?", b"x" * 161, b"nothing\0", "½".encode()]


def questions(texts):
    return {"questions": np.array(texts, object)}


@pytest.mark.parametrize(
    "name", ["version", "beam_version", "bfloat16_version"]
)
def test_every_signature_answers_as_in_python(name, request):
    path = request.getfixturevalue(name)
    answers = b"3", b"", b"-12.34", b"%", b"1234567", b"654321"
    pairs = {**questions(GOOD), "answers": np.array(answers, object)}
    requests = [
        (signature, questions(texts))
        for signature in ("serving_default", "n_best")
        for texts in ([*GOOD, *BAD, b"x" * 160], [], [b"1"])
    ]
    requests.append(("score", pairs))
    served = Served(path)
    found = run_without_python(path, *requests)
    for (signature, inputs), outputs in zip(requests, found):
        for key, expected in served(signature, **inputs).items():
            if key == "log_probs":
                np.testing.assert_allclose(outputs[key], expected, atol=1e-3)
            else:
                assert outputs[key].tolist() == expected.tolist()


def save_graph(path, function):
    module = tf.Module()
    module.function = tf.function(
        function, input_signature=[tf.TensorSpec((None, 3), name="x")]
    )
    tf.saved_model.save(
        module, str(path), signatures={"serving_default": module.function}
    )


def slice_update(x):
    return {"y": keras.ops.slice_update(x, (0, 0), x[:1, :1])}


def jit_compiled(x):
    return {"y": tf.function(lambda x: x + 1.0, jit_compile=True)(x)}


def python_function(x):
    return {"y": tf.py_function(lambda x: x + 1.0, [x], tf.float32)}


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (slice_update, "XlaDynamicUpdateSlice"),
        (jit_compiled, "XLA compilation disabled"),
        (python_function, "EagerPyFunc"),
    ],
)
def test_refused_graphs_fail_at_the_first_request(tmp_path, function, part):
    save_graph(tmp_path, function)
    with pytest.raises(ValueError, match="stock TF Serving"):
        check_graph(tmp_path)
    request = ("serving_default", {"x": np.ones((2, 3), "float32")})
    [outputs] = run_without_python(tmp_path, request)
    where, message = outputs["error"]
    assert where == "run"
    assert part in message
    if function is not python_function:
        [outputs] = run_without_python(tmp_path, request, has_xla=True)
        assert outputs["y"].shape == (2, 3)

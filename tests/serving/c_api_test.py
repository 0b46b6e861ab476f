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

STATUSES = {
    b"What is the units digit of 23?": b"OK",
    b"": b"EMPTY",
    b"Solve 2*x + 3 = 0 for x.": b"OK",
    b"What is \xff?": b"INVALID_UTF8",
    b"1": b"OK",
    b"x" * 161: b"TOO_LONG",
    b"nothing\0": b"UNKNOWN_CHARACTER",
    b"x" * 160: b"OK",
    "½".encode(): b"UNKNOWN_CHARACTER",
}


def questions(values):
    return {"questions": np.array(list(values), object)}


def test_greedy_answers_are_the_models(version, model):
    together, none, alone = run_without_python(
        version,
        ("serving_default", questions(STATUSES)),
        ("serving_default", questions([])),
        ("serving_default", questions([b"1"])),
    )
    assert together["status"].tolist() == list(STATUSES.values())
    solved = {
        question: answer
        for question, answer, status in zip(
            STATUSES, together["answers"].tolist(), STATUSES.values()
        )
        if status == b"OK"
    }
    expected = model.solve([q.decode() for q in solved])
    assert [answer.decode() for answer in solved.values()] == expected
    assert all(expected)
    assert alone["answers"].tolist() == [solved[b"1"]]
    assert {value.shape for value in none.values()} == {(0,)}


@pytest.mark.parametrize(
    "name", ["version", "beam_version", "bfloat16_version"]
)
def test_every_signature_answers_as_in_python(name, request):
    path = request.getfixturevalue(name)
    asked = questions(q.encode() for q in SUMS[:6])
    answers = b"3", b"", b"-12.34", b"%", b"1234567", b"654321"
    pairs = {**asked, "answers": np.array(answers, object)}
    requests = ("serving_default", asked), ("n_best", asked), ("score", pairs)
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

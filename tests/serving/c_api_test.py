"""A server in C++ can run an export: no Python, no XLA, no custom ops.

The tests call TensorFlow's C API, as TF Serving does, in a process without
TensorFlow's Python and without this project (`c_api_runner.py`).
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.serving.conftest import MAX_ANSWER_LENGTH
from tests.serving.conftest import SAMPLER
from tests.serving.conftest import SUMS
from tests.serving.served import Served
from tests.serving.served import run_without_python
from tpt_keras.decoding import Generator
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


def test_beam_answers_are_the_models(beam_version, model):
    sums = SUMS[:60:7]
    inputs = questions(q.encode() for q in sums)
    requests = ("n_best", inputs), ("serving_default", inputs)
    n_best, outputs = run_without_python(beam_version, *requests)
    for name in ("answers", "log_probs"):
        assert n_best[name][:, 0].tolist() == outputs[name].tolist()
    generator = Generator(model, SAMPLER, MAX_ANSWER_LENGTH)
    for row, answer in enumerate(generator.answer(sums)):
        best = [answer, *answer.alternatives]
        assert n_best["answers"][row].tolist() == [
            each.text.encode() for each in best
        ]
        np.testing.assert_allclose(
            n_best["log_probs"][row],
            [each.log_prob for each in best],
            rtol=1e-4,
            atol=1e-4,
        )


def test_scores_are_the_models(version, model):
    inputs = questions(q.encode() for q in SUMS[:6])
    answers = "3", "", "-12.34", "%", "1234567", "654321"
    inputs["answers"] = np.array([a.encode() for a in answers], object)
    [scored] = run_without_python(version, ("score", inputs))
    expected = Generator(model).score(SUMS[:6], answers)
    assert [status.decode() for status in scored["status"]] == [
        answer.status for answer in expected
    ]
    np.testing.assert_allclose(
        scored["log_probs"], [a.log_prob or 0.0 for a in expected], atol=1e-5
    )


def test_bfloat16_runs(bfloat16_version):
    [outputs] = run_without_python(
        bfloat16_version,
        ("serving_default", questions(q.encode() for q in SUMS)),
    )
    expected, _ = Served(bfloat16_version).ask(SUMS)
    assert [answer.decode() for answer in outputs["answers"]] == expected


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

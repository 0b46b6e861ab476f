"""A stock server in C++ can run an export: no Python, no XLA, no custom op.

It is TensorFlow's own loader and runtime that TF Serving is built of, called
as a server calls them (`c_api_runner.py`), in a process without any Python of
TensorFlow's or of this project's.
"""

import base64
import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.serving.conftest import OPTIONS
from tests.serving.export import c_api_runner
from tests.serving.served import signature_defs
from tpt_keras.decoding import Generator
from tpt_keras.serving.export import check_graph

pytestmark = pytest.mark.slow

QUESTIONS = [
    b"What is the units digit of 23?",
    b"",
    b"Solve 2*x + 3 = 0 for x.",
    b"What is \xff?",
    b"1",
    b"x" * 161,
    b"nothing\0",
    b"x" * 160,
    "½".encode(),
]
STATUS = [
    b"OK",
    b"EMPTY",
    b"OK",
    b"INVALID_UTF8",
    b"OK",
    b"TOO_LONG",
    b"UNKNOWN_CHARACTER",
    b"OK",
    b"UNKNOWN_CHARACTER",
]
GOOD = [place for place, status in enumerate(STATUS) if status == b"OK"]


def to_json(array):
    array = np.asarray(array)
    values = array.flatten().tolist()
    if array.dtype == object:
        values = [base64.b64encode(value).decode() for value in values]
    return {
        "dtype": "string" if array.dtype == object else array.dtype.name,
        "shape": array.shape,
        "values": values,
    }


def from_json(dtype, shape, values):
    if dtype == "string":
        values, dtype = [base64.b64decode(value) for value in values], object
    return np.array(values, dtype).reshape(shape)


def run(path, *requests, has_xla=False):
    """Runs signatures as a server without Python does.

    Args:
        path: The SavedModel.
        *requests: The name of a signature, and the arrays that it takes.
        has_xla: Whether XLA may compile, which it may not in TF Serving.

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
                    signatures[name].inputs[key].name: to_json(value)
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
        # Isolated: neither this folder nor PYTHONPATH is on its path.
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
        else {key: from_json(**value) for key, value in result.items()}
        for result in results
    ]


def questions(values):
    return {"questions": np.array(values, object)}


def test_greedy_answers(version, untrained_model):
    tokenizer = untrained_model.tokenizer
    token_ids = {
        "encoder_token_ids": tokenizer.encode_questions(["1", "1+1"]),
        "decoder_token_ids": np.array([[1, 15, 2], [1, 16, 0]], "int32"),
    }
    all_at_once, logits, none, *alone = run(
        version,
        ("serving_default", questions(QUESTIONS)),
        ("token_ids", token_ids),
        ("serving_default", questions([])),
        *(("serving_default", questions([text])) for text in QUESTIONS),
    )
    expected = [b""] * len(QUESTIONS)
    solved = untrained_model.solve(
        [QUESTIONS[place].decode() for place in GOOD]
    )
    for place, answer in zip(GOOD, solved):
        expected[place] = answer.encode()
    assert all(expected[place] for place in GOOD)
    assert all_at_once["answers"].tolist() == expected
    assert all_at_once["status"].tolist() == STATUS
    is_ok = np.isin(range(len(QUESTIONS)), GOOD)
    assert np.all(all_at_once["log_probs"][is_ok] < 0.0)
    assert not np.any(all_at_once["log_probs"][~is_ok])
    for place, outputs in enumerate(alone):
        assert outputs["answers"].tolist() == [expected[place]]
        assert outputs["status"].tolist() == [STATUS[place]]
    assert {name: value.shape for name, value in none.items()} == {
        "answers": (0,),
        "log_probs": (0,),
        "status": (0,),
    }
    np.testing.assert_allclose(
        logits["logits"],
        keras.ops.convert_to_numpy(untrained_model(token_ids)),
        rtol=1e-4,
        atol=1e-4,
    )


def test_beam_search(options_version, untrained_model):
    n_best, best = run(
        options_version,
        ("n_best", questions(QUESTIONS)),
        ("serving_default", questions(QUESTIONS)),
    )
    sampler = OPTIONS["sampler"]
    found = Generator(
        untrained_model, sampler, OPTIONS["max_answer_length"]
    ).generate_on_batch(
        untrained_model.tokenizer.encode_questions(
            [QUESTIONS[place].decode() for place in GOOD]
        )
    )
    expected = [[b""] * sampler.num_sequences for _ in QUESTIONS]
    for place, beams in zip(GOOD, found["token_ids"]):
        expected[place] = [
            untrained_model.tokenizer.decode(token_ids).encode()
            for token_ids in beams
        ]
    assert n_best["status"].tolist() == STATUS
    assert n_best["answers"].tolist() == expected
    for name in ("log_probs", "scores"):
        np.testing.assert_allclose(
            n_best[name][GOOD], found[name], rtol=1e-4, atol=1e-4
        )
    assert best["answers"].tolist() == n_best["answers"][:, 0].tolist()


# That it could fail


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


def without_any_of_them(x):
    return {"y": x + 1.0}


@pytest.fixture
def x():
    return np.ones((2, 3), "float32")


@pytest.mark.parametrize(
    ("function", "messages"),
    [
        (slice_update, ["XLA compilation disabled", "XlaDynamicUpdateSlice"]),
        (jit_compiled, ["XLA compilation disabled"]),
        (python_function, ["No OpKernel was registered", "EagerPyFunc"]),
    ],
)
def test_what_a_stock_server_cannot_run_fails(tmp_path, x, function, messages):
    """It is loaded, and fails at the first request."""
    save_graph(tmp_path, function)
    with pytest.raises(ValueError, match="stock TF Serving"):
        check_graph(tmp_path)
    # Here, where there is everything, it runs.
    signature = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    assert signature(x=tf.constant(x))["y"].shape == (2, 3)
    [outputs] = run(tmp_path, ("serving_default", {"x": x}))
    assert set(outputs) == {"error"}
    where, message = outputs["error"]
    assert where == "run"
    for part in messages:
        assert part in message


@pytest.mark.parametrize("function", [slice_update, jit_compiled])
def test_it_is_xla_that_is_missing(tmp_path, x, function):
    save_graph(tmp_path, function)
    [outputs] = run(tmp_path, ("serving_default", {"x": x}), has_xla=True)
    assert outputs["y"].shape == (2, 3)


def test_what_a_stock_server_can_run(tmp_path, x):
    save_graph(tmp_path, without_any_of_them)
    check_graph(tmp_path)
    [outputs] = run(tmp_path, ("serving_default", {"x": x}))
    assert outputs["y"].tolist() == (x + 1).tolist()

"""TF Serving's JSON forms, as its documentation of the REST API has them."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tpt_keras.serving.local_server.json_tensors import format_outputs
from tpt_keras.serving.local_server.json_tensors import parse_body
from tpt_keras.serving.local_server.json_tensors import parse_inputs

STRINGS = {"tag": tf.TensorSpec((None,), tf.string)}
SCALAR = {"x": tf.TensorSpec((), tf.float32)}
MATRIX = {"x": tf.TensorSpec((None, 2), tf.int32)}
SEVERAL = {
    "tag": tf.TensorSpec((None,), tf.string),
    "signal": tf.TensorSpec((None, 5), tf.float32),
    "sensor": tf.TensorSpec((None, 2, 2), tf.int64),
    "on": tf.TensorSpec((None,), tf.bool),
}
ROWS = [
    {
        "tag": "foo",
        "signal": [1, 2, 3, 4, 5],
        "sensor": [[1, 2], [3, 4]],
        "on": True,
    },
    {
        "tag": {"b64": "/w=="},
        "signal": [3.5, 4, 1, 2, 5],
        "sensor": [[4, 5], [6, 8]],
        "on": False,
    },
]
COLUMNS = {name: [row[name] for row in ROWS] for name in SEVERAL}


def parse(content, specs):
    arrays, is_row = parse_inputs(content, specs)
    for name, spec in specs.items():
        assert tf.as_dtype(arrays[name].dtype) == spec.dtype
    return {name: array.tolist() for name, array in arrays.items()}, is_row


@pytest.mark.parametrize(
    ("content", "specs", "expected"),
    [
        # Rows: a plain list where there is one input.
        ({"instances": ["foo", "bar"]}, STRINGS, {"tag": [b"foo", b"bar"]}),
        (
            {"instances": ["½", {"b64": "AP8="}]},
            STRINGS,
            {"tag": ["½".encode(), b"\0\xff"]},
        ),
        ({"instances": [{"tag": "foo"}]}, STRINGS, {"tag": [b"foo"]}),
        (
            {"instances": [[1, 2], [3, 4], [5, 6]]},
            MATRIX,
            {"x": [[1, 2], [3, 4], [5, 6]]},
        ),
        # Columns: the same without names, and more than rows can say.
        ({"inputs": ["foo", "bar"]}, STRINGS, {"tag": [b"foo", b"bar"]}),
        ({"inputs": {"tag": ["foo"]}}, STRINGS, {"tag": [b"foo"]}),
        ({"inputs": []}, STRINGS, {"tag": []}),
        ({"inputs": 2}, SCALAR, {"x": 2.0}),
        # What is asked for by name may be more than there is.
        ({"inputs": {"tag": ["foo"], "other": 1}}, STRINGS, {"tag": [b"foo"]}),
    ],
)
def test_inputs(content, specs, expected):
    assert parse(content, specs) == (expected, "instances" in content)


@pytest.mark.parametrize(
    "content", [{"instances": ROWS}, {"inputs": COLUMNS}], ids=["row", "column"]
)
def test_several_inputs(content):
    inputs, _ = parse(content, SEVERAL)
    assert inputs == {
        "tag": [b"foo", b"\xff"],
        "signal": [[1.0, 2.0, 3.0, 4.0, 5.0], [3.5, 4.0, 1.0, 2.0, 5.0]],
        "sensor": [[[1, 2], [3, 4]], [[4, 5], [6, 8]]],
        "on": [True, False],
    }


@pytest.mark.parametrize(
    ("content", "specs", "part"),
    [
        ({}, STRINGS, "one of 'inputs' or 'instances'"),
        ({"inputs": [], "instances": []}, STRINGS, "one of"),
        ({"instances": []}, STRINGS, "list with values"),
        ({"instances": "foo"}, STRINGS, "list with values"),
        ({"instances": {"tag": "foo"}}, STRINGS, "list with values"),
        ({"instances": ["foo", {"tag": "foo"}]}, STRINGS, "element: 0"),
        ({"instances": [{"tag": "foo"}, "foo"]}, STRINGS, "element: 1"),
        ({"instances": [{"tag": "foo", "b": 1}]}, STRINGS, "equal to: tag"),
        ({"instances": [{}]}, STRINGS, "equal to: tag"),
        ({"instances": ["foo"]}, SEVERAL, "several inputs: on,sensor"),
        ({"inputs": ["foo"]}, SEVERAL, "several inputs"),
        ({"inputs": {"tags": ["foo"]}}, STRINGS, "Missing named input: tag"),
        ({"inputs": "foo"}, STRINGS, r"shape \[\], expected \[None\]"),
        ({"inputs": [["foo"]]}, STRINGS, r"shape \[1, 1\]"),
        ({"inputs": [1]}, STRINGS, "int is not of expected type: string"),
        ({"inputs": [None]}, STRINGS, "NoneType is not"),
        ({"inputs": ["foo", ["foo"]]}, STRINGS, "list is not"),
        ({"inputs": [{"b64": 1}]}, STRINGS, "dict is not"),
        ({"inputs": [{"b64": "?"}]}, STRINGS, "Input tag"),
        ({"inputs": [{"b64": "ä"}]}, STRINGS, "Input tag"),
        ({"inputs": [{"b64": "AA==", "x": 1}]}, STRINGS, "dict is not"),
        ({"inputs": ["\ud800"]}, STRINGS, "surrogates"),
        ({"inputs": [[1, 2], [3]]}, MATRIX, "list of 2 values"),
        ({"inputs": [[1, 2], 3]}, MATRIX, "list of 2 values"),
        ({"inputs": [[1, 2, 3]]}, MATRIX, r"expected \[None, 2\]"),
        ({"inputs": [[1, 2.0]]}, MATRIX, "float is not of .* int32"),
        ({"inputs": [[1, True]]}, MATRIX, "bool is not of .* int32"),
        ({"inputs": [[1, 2**31]]}, MATRIX, "Input x"),
        ({"inputs": 10**400}, SCALAR, "Input x"),
        ({"inputs": "1"}, SCALAR, "str is not of .* float32"),
        (
            {"inputs": {**COLUMNS, "on": [0, 1]}},
            SEVERAL,
            "int is not of .*bool",
        ),
    ],
)
def test_inputs_that_are_refused(content, specs, part):
    with pytest.raises(ValueError, match=part):
        parse_inputs(content, specs)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"", "JSON Parse error"),
        (b"{", "JSON Parse error"),
        (b'{"inputs": "\xff"}', "JSON Parse error"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"x":' * 100_000, "nested too deeply"),
        (b'{"inputs": ' + b"1" * 5000 + b"}", "JSON Parse error"),
        (b"[1]", "not object"),
        (b'{"signature_name": 1}', "signature_name"),
    ],
)
def test_bodies_that_are_refused(body, part):
    with pytest.raises(ValueError, match=part):
        parse_body(body)


def test_deep_brackets():
    """So many that they can be read, and are too many for anything else."""
    for depth in (100, 500, 900, 950, 980):
        body = b'{"inputs": ' + b"[" * depth + b"]" * depth + b"}"
        with pytest.raises(ValueError, match=r"shape|nested"):
            parse_inputs(parse_body(body), STRINGS)


OUTPUTS = {
    "answers": np.array([b"5", "½".encode()], object),
    "log_probs": np.array([-0.5, -np.inf], np.float32),
    "echo_bytes": np.array([b"a", b"\xff"], object),
}


def test_deep_brackets_where_any_rank_is_taken():
    specs = {"x": tf.TensorSpec(None, tf.float32)}
    for depth in (70, 2000):
        value = 1.0
        for _ in range(depth):
            value = [value]
        with pytest.raises(ValueError, match=r"^Input x: "):
            parse_inputs({"inputs": {"x": value}}, specs)


def test_outputs():
    rows = [
        {"answers": "5", "log_probs": -0.5, "echo_bytes": {"b64": "YQ=="}},
        {"answers": "½", "log_probs": None, "echo_bytes": {"b64": "/w=="}},
    ]
    columns = {name: [row[name] for row in rows] for name in OUTPUTS}
    assert format_outputs(OUTPUTS, is_row=True) == {"predictions": rows}
    assert format_outputs(OUTPUTS, is_row=False) == {"outputs": columns}


def test_one_output_has_no_name():
    outputs = {"y": np.array([[1, 2], [3, 4]], np.int32)}
    expected = [[1, 2], [3, 4]]
    assert format_outputs(outputs, is_row=True) == {"predictions": expected}
    assert format_outputs(outputs, is_row=False) == {"outputs": expected}


def test_bytes_that_are_no_text():
    outputs = {"y": np.array([b"a\xff"], object)}
    assert format_outputs(outputs, is_row=True) == {
        "predictions": ["a\N{REPLACEMENT CHARACTER}"]
    }


@pytest.mark.parametrize("other", [np.array(1), np.array([1, 2, 3])])
def test_outputs_that_have_no_rows(other):
    outputs = {"y": np.array([1, 2]), "z": other}
    with pytest.raises(ValueError, match="batch sizes"):
        format_outputs(outputs, is_row=True)
    # Columns can say them.
    assert json.dumps(format_outputs(outputs, is_row=False))

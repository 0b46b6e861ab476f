"""TF Serving's JSON forms of requests and responses."""

import base64
import json
import math

import numpy as np

_JSON_TYPES = {"O": str, "f": (int, float), "i": int, "u": int, "b": bool}


def parse_body(body):
    """Reads the body of a request.

    Args:
        body: Bytes.

    Returns:
        Dict.

    Raises:
        ValueError: If it is no JSON object.
    """
    try:
        content = json.loads(body)
    except RecursionError:
        raise ValueError("JSON Parse error: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"JSON Parse error: {error}") from None
    if not isinstance(content, dict):
        raise ValueError("JSON Value: Is not object")
    if not isinstance(content.get("signature_name", ""), str):
        raise ValueError("'signature_name' key must be a string value.")
    return content


def parse_inputs(content, specs):
    """Reads the tensors of a request, in rows or in columns.

    Args:
        content: What `parse_body` returned.
        specs: Dict of the inputs' names to `tf.TensorSpec`s.

    Returns:
        Dict of names to arrays, and whether the request came in rows.

    Raises:
        ValueError: If they are not formatted as they should be.
    """
    is_row = "instances" in content
    if is_row == ("inputs" in content):
        raise ValueError("Expecting one of 'inputs' or 'instances' keys")
    if is_row:
        columns = _columns_of_rows(content["instances"], specs)
    else:
        columns = _columns(content["inputs"], specs)
    arrays = {}
    for name, spec in specs.items():
        try:
            arrays[name] = _array(columns[name], spec)
        # The second, where any rank is taken.
        except (OverflowError, RecursionError, ValueError) as error:
            raise ValueError(f"Input {name}: {error}") from None
    return arrays, is_row


def format_outputs(outputs, is_row):
    """Writes the tensors of a response, in the form of its request.

    Args:
        outputs: Dict of names to arrays.
        is_row: Whether the request came in rows.

    Returns:
        Dict that JSON can hold.

    Raises:
        ValueError: If there are to be rows and outputs are not of one length.
    """
    columns = {
        name: _to_json(array.tolist(), name) for name, array in outputs.items()
    }
    if not is_row:
        [*_, only] = columns.values()
        return {"outputs": columns if len(columns) > 1 else only}
    lengths = {array.shape[:1] for array in outputs.values()}
    if len(lengths) > 1 or () in lengths:
        raise ValueError("Outputs have inconsistent batch sizes")
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    if len(columns) == 1:
        rows = [value for row in rows for value in row.values()]
    return {"predictions": rows}


def _columns_of_rows(rows, specs):
    if not isinstance(rows, list) or not rows:
        raise ValueError("Expecting 'instances' to be a list with values")
    if not any(map(_is_named, rows)):
        return _columns(rows, specs)
    for index, row in enumerate(rows):
        if not _is_named(row) or set(row) != set(specs):
            raise ValueError(
                f"Failed to process element: {index} of 'instances' list. "
                f"JSON object: keys must be equal to: {','.join(sorted(specs))}"
            )
    return {name: [row[name] for row in rows] for name in specs}


def _columns(inputs, specs):
    if not _is_named(inputs):
        if len(specs) != 1:
            raise ValueError(
                "A plain value or list, but expecting an object as there are "
                f"several inputs: {','.join(sorted(specs))}"
            )
        inputs = dict.fromkeys(specs, inputs)
    for name in specs:
        if name not in inputs:
            raise ValueError(f"Missing named input: {name} in 'inputs' object.")
    return inputs


def _is_named(value):
    """Whether a value is an object of names, not bytes in base64."""
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value):
    return (
        isinstance(value, dict)
        and set(value) == {"b64"}
        and isinstance(value["b64"], str)
    )


def _array(value, spec):
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    shape = _shape(value)
    # Before anything is done for every level of a request's brackets.
    if not spec.shape.is_compatible_with(shape):
        raise ValueError(
            f"has shape {shape[:9]}, expected {spec.shape.as_list()}"
        )
    leaves = []
    _collect(value, shape, dtype, leaves)
    array = np.empty(len(leaves), dtype)
    array[:] = leaves
    return array.reshape(shape)


def _shape(value):
    """The shape that the first values say."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return shape


def _collect(value, shape, dtype, leaves):
    if not shape:
        leaves.append(_leaf(value, dtype))
    elif isinstance(value, list) and len(value) == shape[0]:
        for item in value:
            _collect(item, shape[1:], dtype, leaves)
    else:
        raise ValueError(f"Expecting a list of {shape[0]} values")


def _leaf(value, dtype):
    if dtype.kind == "O" and _is_base64(value):
        return base64.b64decode(value["b64"], validate=True)
    is_type = isinstance(value, _JSON_TYPES[dtype.kind])
    # Python's True is an integer, too; JSON's is none.
    if not is_type or isinstance(value, bool) != (dtype.kind == "b"):
        name = "string" if dtype.kind == "O" else dtype.name
        raise ValueError(
            f"JSON Value of type {type(value).__name__} is not of expected "
            f"type: {name}"
        )
    return value.encode() if dtype.kind == "O" else value


def _to_json(value, name):
    if isinstance(value, list):
        return [_to_json(item, name) for item in value]
    if isinstance(value, bytes):
        if name.endswith("_bytes"):
            return {"b64": base64.b64encode(value).decode()}
        return value.decode(errors="replace")
    if isinstance(value, float) and not math.isfinite(value):
        # TF Serving writes NaN, which is no JSON.
        return None
    return value

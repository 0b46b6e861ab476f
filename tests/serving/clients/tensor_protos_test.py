import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2

from tests.bounded import bounded
from tpt_keras.serving.clients.tensor_protos import parse_tensor


def make_proto(shape, dtype=tf.string, **values):
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum, **values)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


@pytest.mark.parametrize(
    "value",
    [
        [b"1", b"\xff"],
        [[1, 2], [3, 4]],
        np.zeros((0, 3), np.int32),
        np.ones((1000, 1000), np.float32),
        np.ones((2**20, 3), bool),
        np.array(0.5),
        ["x" * 2**21] * 2,
    ],
)
def test_reads_what_tensorflow_writes(value):
    expected = np.array(value, object if isinstance(value, list) else None)
    if expected.dtype == object and isinstance(value[0], list):
        expected = np.array(value, np.int32)
    elif expected.dtype == object:
        expected = np.array(list(map(tf.compat.as_bytes, value)), object)
    array = parse_tensor(tf.make_tensor_proto(value))
    np.testing.assert_array_equal(array, expected)
    assert array.dtype == expected.dtype


def test_values_that_are_left_out():
    proto = make_proto([2, 3], tf.int32, int_val=[1, 2])
    assert parse_tensor(proto).tolist() == [[1, 2, 2], [2, 2, 2]]
    proto = make_proto([3], string_val=[b"a"])
    assert parse_tensor(proto).tolist() == [b"a"] * 3


@pytest.mark.parametrize(
    ("shape", "dtype", "values"),
    [
        ([10**9], tf.string, {"string_val": [b"1"]}),
        ([10**9], tf.string, {}),
        ([1, 10**9], tf.int32, {"int_val": [1]}),
        # No rows, and yet a length that a model would count to.
        ([0, 10**9], tf.int32, {}),
        ([10**4, 10**4], tf.int32, {}),
        ([2**32, 2**32], tf.int32, {}),
        # Not many, but each as large as a message.
        ([1000], tf.string, {"string_val": [b"x" * 2**20]}),
        ([1000], tf.string, {"string_val": [b"x", b"x" * 2**20]}),
    ],
)
def test_shapes_without_values(shape, dtype, values):
    proto = make_proto(shape, dtype, **values)
    with bounded(), pytest.raises(ValueError, match="4194304 bytes"):
        parse_tensor(proto)


def test_a_negative_shape():
    for shape in ([-1], [2, -3], [-(10**5), -(10**5)]):
        with pytest.raises(ValueError, match="is none"):
            parse_tensor(make_proto(shape, string_val=[b"a"]))


SIZES = st.integers(-2, 5) | st.integers(-(2**63), 2**63 - 1)


@given(
    st.lists(SIZES, max_size=4),
    st.sampled_from([tf.string, tf.int32, tf.int8, tf.float32, tf.variant]),
    st.fixed_dictionaries(
        {},
        optional={
            "string_val": st.lists(st.binary(max_size=4), max_size=3),
            "int_val": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
            "float_val": st.lists(st.floats(width=32), max_size=3),
            "tensor_content": st.binary(max_size=16),
        },
    ),
)
def test_whatever_a_message_says(shape, dtype, values):
    proto = make_proto(shape, dtype, **values)
    with bounded():
        try:
            array = parse_tensor(proto)
        except ValueError:
            return
        assert array.nbytes <= 2**22
        assert array.shape == tuple(shape)

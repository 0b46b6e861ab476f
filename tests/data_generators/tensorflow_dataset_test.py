import gc
import weakref

import numpy as np
import pytest
import tensorflow as tf

from tests.experiments.command import run_python
from tpt_keras.data_generators.tensorflow_dataset import function_dataset

SIGNATURE = (
    {"b": tf.TensorSpec((None,), tf.int32), "a": tf.TensorSpec([], tf.string)},
    tf.TensorSpec((2, None), tf.float32),
)


def element(number):
    return (
        {"b": np.arange(number, dtype="int32"), "a": b"%d" % number},
        np.ones((2, number), "float32"),
    )


def numbers(dataset):
    return [int(first["a"]) for first, _ in dataset.as_numpy_iterator()]


def test_an_element_for_each_number():
    dataset = function_dataset(element, 3, 6, SIGNATURE)
    assert dataset.element_spec == SIGNATURE
    assert dataset.cardinality() == 3
    for _ in range(2):
        elements = list(dataset.as_numpy_iterator())
        assert len(elements) == 3
        for number, (first, second) in zip(range(3, 6), elements):
            expected, ones = element(number)
            assert first.keys() == expected.keys()
            assert first["a"] == expected["a"]
            np.testing.assert_array_equal(first["b"], expected["b"])
            np.testing.assert_array_equal(second, ones)


def test_endless_and_empty_numbers():
    endless = function_dataset(element, 5, None, SIGNATURE)
    assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
    assert numbers(endless.take(3)) == [5, 6, 7]
    empty = function_dataset(element, 5, 3, SIGNATURE)
    assert empty.cardinality() == 0
    assert numbers(empty) == []


def test_a_dataset_that_is_gone_keeps_nothing():
    def function(number):
        return element(number)

    alive = weakref.ref(function)
    dataset = function_dataset(function, 0, 3, SIGNATURE)
    del function
    assert numbers(dataset.repeat(2)) == [0, 1, 2] * 2
    del dataset
    gc.collect()
    assert alive() is None


def test_a_graph_keeps_what_it_calls():
    @tf.function
    def largest():
        dataset = function_dataset(lambda n: element(n), 0, 4, SIGNATURE)
        return dataset.map(lambda first, _: tf.size(first["b"])).reduce(
            0, tf.maximum
        )

    for _ in range(2):
        assert int(largest()) == 3
        gc.collect()


def test_error_is_raised_and_nothing_stays_locked():
    def fail(number):
        if number == 2:
            raise ZeroDivisionError("a defect")
        return element(number)

    iterator = function_dataset(fail, 0, 9, SIGNATURE).as_numpy_iterator()
    assert [next(iterator)[0]["a"] for _ in range(2)] == [b"0", b"1"]
    with pytest.raises(tf.errors.OpError, match="a defect"):
        next(iterator)
    assert numbers(function_dataset(element, 0, 2, SIGNATURE)) == [0, 1]


@pytest.mark.slow
def test_process_ends_with_live_iterators():
    """Without the gate, it mostly hangs."""
    result = run_python("-m", "tests.data_generators.held_iterators")
    assert (result.status, result.stdout) == (0, "ends\n"), result
    assert "PyFunc" not in result.stderr

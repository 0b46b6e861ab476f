"""A `tf.data.Dataset` of what a Python function computes."""

import atexit
import functools

import tensorflow as tf


def function_dataset(function, start, stop, signature):
    """A dataset of a function of numbers.

    Unlike `tf.data.Dataset.from_generator` it can be asked while the
    interpreter ends, whoever still holds an iterator: see `_Gate`.

    Args:
        function: Gives arrays, nested as in `signature`, for a number.
        start: First number.
        stop: Where the numbers end, or None.
        signature: Nested `tf.TensorSpec`s.

    Returns:
        A dataset with an element for each number.
    """
    specs = tf.nest.flatten(signature)
    dtypes = [spec.dtype for spec in specs]

    def compute(number):
        return tf.nest.flatten(function(int(number)))

    def element(number):
        values = _gate().call(
            lambda: tf.numpy_function(compute, [number], dtypes), dtypes
        )
        for value, spec in zip(values, specs):
            value.set_shape(spec.shape)
        return tf.nest.pack_sequence_as(signature, values)

    if stop is None:
        numbers = tf.data.Dataset.counter(start)
    else:
        numbers = tf.data.Dataset.range(start, stop)
    return numbers.map(element)


class _Gate:
    """Lets calls of Python through, one at a time, until the interpreter ends.

    tf.data calls from threads of its own, ahead of whoever asks. A thread that
    waits for an interpreter which is on its way out is stopped wherever it is,
    and whoever waits for that thread waits for ever. So before that, the gate
    is shut: behind the call that is running, and before any other. That is for
    TensorFlow to do, since a thread that asks Python whether it may call has
    called already.
    """

    def __init__(self):
        with tf.init_scope(), tf.device("CPU:0"):
            self._one_at_a_time = tf.CriticalSection()
            self._open = tf.queue.FIFOQueue(1, tf.bool)  # or closed
        atexit.register(self._shut)

    def call(self, function, dtypes):
        """Calls in a graph what calls Python and returns a list of tensors."""

        def refuse():
            # What is closed raises an error here.
            with tf.control_dependencies([self._open.dequeue()]):
                return [tf.zeros([0], dtype) for dtype in dtypes]

        return self._one_at_a_time.execute(
            lambda: tf.cond(self._open.is_closed(), refuse, function)
        )

    def _shut(self):
        self._one_at_a_time.execute(self._open.close)


@functools.cache
def _gate():
    return _Gate()

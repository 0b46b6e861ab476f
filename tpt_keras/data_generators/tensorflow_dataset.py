"""Datasets of TensorFlow that call a Python function."""

import atexit
import functools
import weakref

import tensorflow as tf


def function_dataset(function, start, stop, signature):
    """Makes a `tf.data.Dataset` of the values of a Python function of numbers.

    Unlike one of `tf.data.Dataset.from_generator`, its iterators may be alive
    while the interpreter ends; see `_ExitGate`. The numbers end before `stop`,
    if it is not `None`. The values are arrays, nested as the `tf.TensorSpec`s
    of the signature.
    """
    specs = tf.nest.flatten(signature)
    dtypes = [spec.dtype for spec in specs]

    # TensorFlow keeps what it calls until the process ends. So the dataset
    # keeps the function, but not in a graph, which outlives the dataset.
    get = weakref.ref(function) if tf.executing_eagerly() else lambda: function

    def compute(number):
        return tf.nest.flatten(get()(int(number)))

    def element(number):
        values = _exit_gate().call(
            lambda: tf.numpy_function(compute, [number], dtypes), dtypes
        )
        for value, spec in zip(values, specs):
            value.set_shape(spec.shape)
        return tf.nest.pack_sequence_as(signature, values)

    if stop is None:
        numbers = tf.data.Dataset.counter(start)
    else:
        numbers = tf.data.Dataset.range(start, stop)
    dataset = numbers.map(element).prefetch(tf.data.AUTOTUNE)
    dataset._function = function
    return dataset


class _ExitGate:
    """Lets a graph call Python, one call at a time, until the interpreter ends.

    The interpreter ends every thread that calls Python, and tf.data would wait
    for its own forever. So the gate closes first, after the running call. It
    closes in the graph: in Python, it would be too late.
    """

    def __init__(self):
        with tf.init_scope(), tf.device("CPU:0"):
            self._one_at_a_time = tf.CriticalSection()
            self._open = tf.queue.FIFOQueue(1, tf.bool)  # or closed
        atexit.register(self._shut)

    def call(self, function, dtypes):
        """Adds a call to a graph. The function returns a list of tensors."""

        def refuse():
            # Dequeuing from a closed queue raises an error.
            with tf.control_dependencies([self._open.dequeue()]):
                return [tf.zeros([0], dtype) for dtype in dtypes]

        return self._one_at_a_time.execute(
            lambda: tf.cond(self._open.is_closed(), refuse, function)
        )

    def _shut(self):
        self._one_at_a_time.execute(self._open.close)


@functools.cache
def _exit_gate():
    return _ExitGate()

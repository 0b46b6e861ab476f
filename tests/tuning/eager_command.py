"""A command of `experiments` whose TensorFlow traces no graphs.

python -m tests.tuning.eager_command NAME <flags>

Tracing would take longer than the few steps of these trainings.
"""

import runpy

import keras

if __name__ == "__main__":
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.run_functions_eagerly(True)
    runpy.run_module("experiments", run_name="__main__")

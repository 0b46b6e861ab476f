"""A command of `experiments` whose TensorFlow traces no graphs.

python -m tests.tuning.eager_command NAME <flags>

Tracing would take longer than the few steps of these trainings.
"""

import runpy
import sys

import keras

if __name__ == "__main__":
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.run_functions_eagerly(True)
    name = sys.argv.pop(1)
    runpy.run_module(f"experiments.{name}", run_name="__main__")

"""`experiments.tune`, whose chief does not wait long for a lost worker.

And which on TensorFlow traces no graphs: that would take longer than the few
steps of trials.

python -m tests.tuning.impatient_tune <flags>
"""

import runpy

import keras

from tpt_keras.tuning import worker_pulse

if __name__ == "__main__":
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.run_functions_eagerly(True)
    worker_pulse.LOST_SECONDS = 15.0
    runpy.run_module("experiments.tune", run_name="__main__")

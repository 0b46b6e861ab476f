"""`experiments.tune`, whose chief does not wait long for a lost worker.

And which traces no graphs: that would take longer than the few steps of trials.

python -m tests.tuning.impatient_tune <flags>
"""

import runpy

import tensorflow as tf

from tpt_keras.tuning import worker_pulse

if __name__ == "__main__":
    tf.config.run_functions_eagerly(True)
    worker_pulse.LOST_SECONDS = 15.0
    runpy.run_module("experiments.tune", run_name="__main__")

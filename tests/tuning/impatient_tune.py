"""`experiments.tune`, whose chief does not wait long for a lost worker.

python -m tests.tuning.impatient_tune <flags>
"""

import runpy

from tpt_keras.tuning import worker_pulse

if __name__ == "__main__":
    worker_pulse.LOST_SECONDS = 15.0
    runpy.run_module("experiments.tune", run_name="__main__")

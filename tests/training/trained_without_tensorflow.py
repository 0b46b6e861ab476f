"""`tpt_keras train`, and what follows it, where there is no TensorFlow.

    python -m tests.training.trained_without_tensorflow <flags>

prints the answer of the trained model last.
"""

import importlib
import runpy
import sys

QUESTION = "What is 1 + 1?"


def main():
    """Trains, and does what else has to be done without TensorFlow."""
    assert "tensorflow" not in sys.modules
    # Importing them fails, as if they were not installed.
    sys.modules.update(dict.fromkeys(("tensorflow", "tensorflow_datasets")))
    sys.argv.insert(1, "train")
    try:
        runpy.run_module("experiments", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    from absl import flags

    from tpt_keras.models.stored import load_model

    importlib.import_module("tpt_keras.data_generators.mathematics.generator")
    [answer] = load_model(flags.FLAGS.model_dir).solve([QUESTION])
    print(repr(answer))


if __name__ == "__main__":
    main()

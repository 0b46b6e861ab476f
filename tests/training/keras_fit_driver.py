"""Stock Keras's `fit` under `tf.distribute`: prints what it raises, as JSON.

python -m tests.training.keras_fit_driver mirrored|multi_worker
"""

import json
import sys

import keras
import tensorflow as tf

from tpt_keras.training.distribution import make_strategy


class WithoutSymbolicBuild(keras.Model):
    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        pass


def fit(strategy, model_class, lengths):
    """Fits a built model.

    Args:
        strategy: A strategy.
        model_class: `keras.Model` or a class derived from it.
        lengths: The lengths of this worker's replicas' parts of a batch.

    Returns:
        The error as text, or `None`.
    """

    # Nothing of Python in it: a generator that is still asked for more when
    # the interpreter ends can keep the process from ever ending.
    parts = (
        tf.data.Dataset.from_tensor_slices(lengths)
        .map(lambda length: (tf.ones((4, length, 1)),) * 2)
        .repeat()
    )
    batches = strategy.distribute_datasets_from_function(lambda context: parts)
    with strategy.scope():
        inputs = keras.Input((None, 1))
        model = model_class(inputs, keras.layers.Dense(1)(inputs))
        model.compile("sgd", "mse", jit_compile=False)
        model.optimizer.build(model.trainable_variables)
    try:
        model.fit(batches, steps_per_epoch=2, shuffle=False, verbose=0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def main(distribution):
    """Runs what `multi_worker_fit_test.py` looks at."""
    if distribution == "mirrored":
        strategy = make_strategy("mirrored", logical_cpus=2)
        errors = {
            "equal lengths": fit(strategy, keras.Model, [2, 2]),
            "other lengths": fit(strategy, keras.Model, [2, 3]),
        }
    else:
        strategy = make_strategy("multi_worker_mirrored")
        errors = {
            "stock": fit(strategy, keras.Model, [2]),
            "without symbolic build": fit(strategy, WithoutSymbolicBuild, [2]),
        }
    print(json.dumps(errors))


if __name__ == "__main__":
    main(sys.argv[1])

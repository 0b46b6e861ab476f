"""Stock Keras and `DistributedFit` under `tf.distribute`.

Prints as JSON what came of it on two devices or, as one of several workers,
writes it to a file, for TensorFlow may print behind it.

python -m tests.training.keras_fit_driver [<file>]
"""

import json
import pathlib
import sys

import keras
import tensorflow as tf

from tpt_keras.training.distributed_fit import DistributedFit
from tpt_keras.training.distribution import make_strategy


class WithoutSymbolicBuild(keras.Model):
    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        pass


class Mended(DistributedFit, keras.Model):
    pass


def new_model(strategy, model_class, **kwargs):
    """A built model of one weight and one bias, under a strategy."""
    with strategy.scope():
        inputs = keras.Input((None, 1))
        outputs = keras.layers.Dense(1, kernel_initializer="ones")(inputs)
        model = model_class(inputs, outputs)
        model.compile(
            keras.optimizers.SGD(0.1),
            "mse",
            **{"jit_compile": False, **kwargs},
        )
        model.optimizer.build(model.trainable_variables)
    return model


def distributed(strategy, lengths, targets=None):
    """Parts of batches for this worker's replicas, from ones to the targets.

    Nothing of Python in it: a generator that is still asked for more when the
    interpreter ends can keep the process from ever ending.

    Args:
        strategy: A strategy.
        lengths: The length of every part.
        targets: The target of every part. Defaults to zeros.

    Returns:
        A distributed dataset.
    """
    parts = tf.data.Dataset.from_tensor_slices(
        (lengths, targets or [0.0] * len(lengths))
    ).map(
        lambda length, target: (
            tf.ones((4, length, 1)),
            tf.fill((4, length, 1), target),
        )
    )
    return strategy.distribute_datasets_from_function(lambda context: parts)


def fit(strategy, model_class, lengths, **kwargs):
    """Fits a model for two steps.

    Args:
        strategy: A strategy.
        model_class: `keras.Model` or a class derived from it.
        lengths: The lengths of this worker's replicas' parts of a batch.
        **kwargs: Arguments of `compile`.

    Returns:
        The error as text, or `None`.
    """
    model = new_model(strategy, model_class, **kwargs)
    batches = distributed(strategy, 2 * lengths)
    try:
        model.fit(batches, steps_per_epoch=2, shuffle=False, verbose=0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def several_steps(strategy):
    """What a mended model does in executions of three steps.

    Returns:
        Dict of the steps and weights that fits and a single batch came to, and
        of the losses of evaluations, whose data end somewhere.
    """
    model = new_model(strategy, Mended, steps_per_execution=3)
    found = {"losses": []}

    def note(name):
        found[name] = [
            int(model.optimizer.iterations.numpy()),
            *(float(weight.numpy().item()) for weight in model.weights),
        ]

    for steps in (1, 2, 3, 4):
        targets = [float(part) for part in range(2 * steps)]
        batches = distributed(strategy, 2 * steps * [2], targets)
        found["losses"].append(model.evaluate(batches, steps=steps, verbose=0))
    for name in ("three", "six more"):
        model.fit(
            distributed(strategy, 2 * 6 * [2, 3]),
            steps_per_epoch=3 if name == "three" else 6,
            shuffle=False,
            verbose=0,
        )
        note(name)
    model.train_on_batch(tf.ones((4, 2, 1)), tf.zeros((4, 2, 1)))
    note("one batch")
    return found


def errors_of_workers(strategy):
    """What stock Keras fails with under several workers."""
    return {
        "stock": fit(strategy, keras.Model, [2]),
        "without symbolic build": fit(strategy, WithoutSymbolicBuild, [2]),
    }


def main(path=None):
    """Runs what `distributed_fit_test.py` looks at."""
    if path:
        errors = errors_of_workers(make_strategy("multi_worker_mirrored"))
        pathlib.Path(path).write_text(json.dumps(errors))
        return
    strategy = make_strategy("mirrored", logical_cpus=2)
    found = {
        "equal lengths": fit(strategy, keras.Model, [2, 2]),
        "other lengths": fit(strategy, keras.Model, [2, 3]),
        "several steps": fit(
            strategy, keras.Model, [2, 2], steps_per_execution=2
        ),
        "XLA": fit(strategy, keras.Model, [2, 2], jit_compile=True),
        "mended": several_steps(strategy),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Two replicas learn what one does, on every backend."""

import json

import keras
import numpy as np
import pytest

from tests.conftest import MODULE
from tests.training import processes
from tests.training.distributed_driver import train_and_record
from tests.training.processes import ForkedProcess

pytestmark = [pytest.mark.slow, pytest.mark.jax]

MODEL = {
    "preset": "tp_transformer",
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "num_heads": 2,
    "num_layers": 1,
}
# Traced in less than half of the time.
SIMPLE_MODEL = {"preset": "lstm", "hidden_dim": 16, "thinking_steps": 1}

# Two replicas get 9 and 8 rows of a training batch; the last batch of the 18
# validation problems, and of the 19 of a split, leaves them one and none, and
# one each.
TRAINING = {
    "modules": [MODULE],
    "train_steps": 10,
    "batch_size": 17,
    "learning_rate": 1e-2,
    # If an element of the gradient is near zero, Adam would make a step of
    # its rounding error.
    "adam_epsilon": 1e-5,
    "global_clipnorm": 0.1,
    "validation_examples": 18,
    "steps_per_checkpoint": 1,
    "steps_per_evaluation": 5,
}

# The 596 problems' last batch is a single one, for one replica, and one of its
# micro-batches. Evaluations of one step are less than an execution of two.
MICRO_BATCHES = {
    "model": MODEL,
    "training": {
        "batch_size": 85,
        "validation_examples": 4,
        "steps_per_checkpoint": 2,
        "steps_per_evaluation": 10,
    },
    "options": {"gradient_accumulation_steps": 3, "steps_per_execution": 2},
}

# The trainings on two replicas, which have to equal those on one.
ON_TWO = {
    "plain": {},
    "in micro-batches": MICRO_BATCHES,
    "mixed_float16": {
        "training": {"precision": "mixed_float16", "learning_rate": 0.1}
    },
}
ON_ONE = {
    "plain": {},
    "in micro-batches": {
        name: MICRO_BATCHES[name] for name in ("model", "training")
    },
}
if keras.backend.backend() != "tensorflow":
    # Every training compiles; this one has all there is.
    ON_TWO, ON_ONE = (
        {"in micro-batches": trainings["in micro-batches"]}
        for trainings in (ON_TWO, ON_ONE)
    )


def arguments(changes, data_dir, model_dir):
    """Arguments of `train_and_record`."""
    return {
        "model": changes.get("model", SIMPLE_MODEL),
        "training": {
            **TRAINING,
            **changes.get("training", {}),
            "data_dir": str(data_dir),
        },
        "model_dir": str(model_dir),
        "options": {"evaluation_examples": 19, **changes.get("options", {})},
    }


@pytest.fixture(scope="module")
def on_two(tmp_path_factory, place_value_data):
    """Records of the trainings on two replicas, by name.

    In another process, for this one's has made one device of its CPU.
    """
    folder = tmp_path_factory.mktemp("two_replicas")
    trainings = [
        {
            **arguments(changes, place_value_data, folder / name),
            "record": str(folder / f"{name}.npz"),
        }
        for name, changes in ON_TWO.items()
    ]
    job = {
        "strategy": {"distribution": "mirrored", "logical_cpus": 2},
        "trainings": trainings,
    }
    process = ForkedProcess(
        "tests.training.distributed_driver",
        json.dumps(job),
        output=folder / "output",
    )
    with processes.killed_at_the_end([process]):
        assert process.wait() == 0, process.output
    return {name: dict(np.load(folder / f"{name}.npz")) for name in ON_TWO}


@pytest.fixture(scope="module")
def on_one(tmp_path_factory, place_value_data):
    """The same trainings on one device."""
    folder = tmp_path_factory.mktemp("one_replica")
    return {
        name: train_and_record(
            **arguments(changes, place_value_data, folder / name)
        )
        for name, changes in ON_ONE.items()
    }


@pytest.mark.parametrize("name", ON_ONE)
def test_two_replicas_learn_what_one_does(on_two, on_one, name):
    assert_same_training(on_two[name], on_one[name])


def test_clipping_bites_where_replicas_are_compared(on_one):
    for record in on_one.values():
        norms = record["metrics/gradient_norm"]
        assert np.all(norms > 2 * TRAINING["global_clipnorm"])


@pytest.mark.skipif("plain" not in ON_ONE, reason="of TensorFlow alone")
def test_two_replicas_train_with_mixed_float16(on_two, on_one):
    record = on_two["mixed_float16"]
    for name, values in record.items():
        assert np.all(np.isfinite(values)), name
    losses = record["metrics/loss"]
    assert losses[-1] < losses[0] - 1.0
    # No 1e-5 here: but neither another loss, nor one that is still scaled.
    for name in ("loss", "gradient_norm"):
        np.testing.assert_allclose(
            record[f"metrics/{name}"][0],
            on_one["plain"][f"metrics/{name}"][0],
            rtol=0.02,
        )


def assert_same_training(record, expected, tolerance=1e-5):
    """Metrics, and weights relative to the largest of their tensor.

    But for the biases of the attentions' keys: softmax takes no notice of
    them, so that their gradients are nothing but rounding, which Adam, who
    divides by the gradient's size, makes into steps as large as any.
    """
    assert record.keys() == expected.keys()
    for name, values in expected.items():
        if not name.endswith("key/bias"):
            error = np.max(np.abs(record[name] - values))
            assert error <= tolerance * np.max(np.abs(values)), name

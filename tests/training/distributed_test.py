"""Replicas and workers learn what one device does, on every backend.

Everything here has a time limit: a worker whose partner is gone waits.
"""

import numpy as np
import pytest

from tests.conftest import MODULE
from tests.serving.tf_serving import free_port
from tests.training import processes
from tests.training.processes import ForkedProcess
from tests.training.trainings import SIMPLE_MODEL
from tests.training.trainings import checkpoints_of
from tests.training.trainings import flags_of
from tests.training.trainings import timeless_metrics
from tpt_keras.models.stored import load_model
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.train import train

pytestmark = [pytest.mark.slow, pytest.mark.jax]

# Two replicas get 9 and 8 rows of a batch; the last batch of the 18 validation
# problems leaves them one and none, that of the 19 of a split one each.
FIELDS = {
    "train_steps": 6,
    "batch_size": 17,
    "learning_rate": 1e-2,
    # If an element of the gradient is near zero, Adam would make a step of
    # its rounding error.
    "adam_epsilon": 1e-5,
    "global_clipnorm": 0.1,
    "validation_examples": 18,
    "evaluation_examples": 19,
    "steps_per_checkpoint": 2,
    "steps_per_evaluation": 6,
}
# Dropout differs on every device.
MODEL = (SIMPLE_MODEL[0], SIMPLE_MODEL[1].replace("0.1", "0.0"))


@pytest.fixture(scope="module")
def on_one(tmp_path_factory, place_value_data, simple_config, request):
    """The folder of the training on one device."""
    folder = tmp_path_factory.mktemp("on_one")
    config = TrainingConfig.from_flat(
        modules=[MODULE],
        data_dir=str(place_value_data),
        optimizer=getattr(request, "param", "adam"),
        **FIELDS,
    )
    train(simple_config, config, folder)
    return folder


def assert_same_training(model_dir, expected_dir, tolerance=1e-5):
    """Metrics, and weights relative to the largest of their tensor."""
    rows, expected = map(timeless_metrics, (model_dir, expected_dir))
    for row, others in zip(rows, expected, strict=True):
        assert row == pytest.approx(others, rel=tolerance)
        # The clipping clips.
        assert row["gradient_norm"] > 2 * FIELDS["global_clipnorm"]
    model, expected = map(load_model, (model_dir, expected_dir))
    for ours, theirs in zip(model.weights, expected.weights, strict=True):
        ours, theirs = ours.numpy(), theirs.numpy()
        error = np.max(np.abs(ours - theirs))
        assert error <= tolerance * np.max(np.abs(theirs))


@pytest.mark.parametrize(
    ("on_one", "optimizer"),
    [("adam", "adam"), ("muon", "muon")],
    indirect=["on_one"],
)
def test_two_replicas_learn_what_one_does_in_micro_batches(
    tmp_path, place_value_data, on_one, optimizer
):
    model_dir = tmp_path / "model"
    flags = flags_of(
        place_value_data,
        model_dir,
        **FIELDS,
        optimizer=optimizer,
        distribution="mirrored",
        logical_cpus=2,
        gradient_accumulation_steps=3,
    )
    process = ForkedProcess(
        "experiments", "train", *MODEL, *flags, output=tmp_path / "output"
    )
    with processes.killed_at_the_end([process]):
        assert process.wait() == 0, process.output
    assert_same_training(model_dir, on_one)


def test_two_killed_workers_learn_what_one_process_does(
    tmp_path, place_value_data, on_one
):
    """They have one folder, and only the chief writes."""
    model_dir = tmp_path / "model"
    environments = processes.cluster([free_port(), free_port()])
    started = []

    def start(attempt):
        pair = [
            ForkedProcess(
                "experiments",
                "train",
                *MODEL,
                *flags_of(place_value_data, model_dir, **FIELDS),
                output=tmp_path / f"output_{attempt}_{index}",
                environment=environment,
            )
            for index, environment in enumerate(environments)
        ]
        started.extend(pair)
        return pair

    with processes.killed_at_the_end(started):
        chief, other = start(1)
        chief.wait_until(lambda: checkpoints_of(model_dir))
        chief.kill()
        other.kill()
        assert not (model_dir / "model.keras").exists()
        for process in start(2):
            assert process.wait() == 0, process.output
            # The weights' own, not those that every worker starts with.
            assert "Resuming from" in process.output
    assert_same_training(model_dir, on_one)
    assert {path.name for path in model_dir.iterdir()} == {
        ".lock",
        "best.keras",
        "checkpoints",
        "config.json",
        "learning_curves.png",
        "logs",
        "metrics.jsonl",
        "model.keras",
    }
    for run in (model_dir / "logs").iterdir():
        # One of each process that the chief was.
        assert len(list(run.iterdir())) <= 2

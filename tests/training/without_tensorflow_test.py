"""JAX and PyTorch, without TensorFlow, learn what TensorFlow does."""

import ast
import os
import shutil

import numpy as np
import pytest

from tests.conftest import JAX_XLA_FLAGS
from tests.conftest import MODULE
from tests.experiments.command import run_python
from tests.training.trained_without_tensorflow import QUESTION
from tpt_keras.data_generators import training_task
from tpt_keras.data_generators.task import split_batches
from tpt_keras.models import Transformer
from tpt_keras.models.stored import load_model
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.state import model_folder
from tpt_keras.training.state.logs import read_metrics
from tpt_keras.training.train import train
from tpt_keras.training.trainer import Trainer

pytestmark = pytest.mark.slow

TRAIN_STEPS = 100
HPARAMS = {
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "num_heads": 2,
    "num_layers": 1,
}


@pytest.fixture(scope="module")
def training(tmp_path_factory, tiny_config, place_value_data):
    """A training whose initial weights do not depend on the backend."""
    folder = tmp_path_factory.mktemp("start")
    start = Transformer(tiny_config)
    rng = np.random.default_rng(7)
    for weight in start.weights:
        weight.assign(
            weight.path.endswith("gamma") + 0.2 * rng.normal(size=weight.shape)
        )
    model_folder.save_model(start, folder, best=True)
    return TrainingConfig.from_flat(
        modules=[MODULE],
        data_dir=str(place_value_data),
        train_steps=TRAIN_STEPS,
        batch_size=16,
        learning_rate=1e-3,
        warmup_steps=10,
        # If an element of the gradient is near zero, Adam would make a step
        # of its rounding error.
        adam_epsilon=1e-5,
        validation_examples=20,
        steps_per_checkpoint=25,
        steps_per_evaluation=TRAIN_STEPS,
        init_from=str(folder),
        evaluation_examples=20,
    )


@pytest.fixture(scope="module")
def on_tensorflow(tmp_path_factory, tiny_config, training):
    """The folder of the training on TensorFlow."""
    folder = tmp_path_factory.mktemp("on_tensorflow")
    train(tiny_config, training, folder, "tp_transformer_tiny")
    return folder


@pytest.fixture(scope="module", params=["jax", "torch"])
def elsewhere(request, tmp_path_factory, training):
    """The folder of the training, and the output of the command."""
    folder = tmp_path_factory.mktemp(request.param)
    flags = training.flat() | {
        "modules": MODULE,
        "preset": "tp_transformer_tiny",
        "hparams": ",".join(f"{k}={v}" for k, v in HPARAMS.items()),
        "model_dir": folder,
    }
    for name in ("dataset_options", "module_weights"):
        del flags[name]
    return folder, train_without_tensorflow(request.param, flags)


def train_without_tensorflow(backend, flags):
    """Trains in a process of its own, and returns what it prints."""
    choices = {"KERAS_BACKEND": backend, "XLA_FLAGS": JAX_XLA_FLAGS}
    result = run_python(
        *("-m", "tests.training.trained_without_tensorflow"),
        *(f"--{name}={value}" for name, value in flags.items()),
        env={**os.environ, **choices},
    ).succeeded()
    return result.stdout


def assert_same_rows(rows, expected):
    for row, others in zip(rows, expected, strict=True):
        assert list(row) == list(others)
        for name, value in row.items():
            if name != "minutes" and not name.endswith("_per_second"):
                assert value == pytest.approx(others[name], rel=1e-4), (
                    row["step"],
                    name,
                )


def test_the_same_is_learned(elsewhere, on_tensorflow):
    rows, expected = map(read_metrics, (elsewhere[0], on_tensorflow))
    assert len(expected) == 4
    assert_same_rows(rows, expected)
    # It has learned something, and far above the norm that it is clipped at.
    assert expected[-1]["loss"] < 0.9 * expected[0]["loss"]
    assert min(row["gradient_norm"] for row in expected) > 0.5


def test_tensorflow_answers_and_evaluates_the_same(
    elsewhere, tiny_config, training
):
    folder, output = elsewhere
    model = load_model(folder)
    answer = ast.literal_eval(output.splitlines()[-1])
    assert model.solve([QUESTION]) == [answer]
    trainer = Trainer(model)
    trainer.compile(jit_compile=False)
    _, validation = split_batches(
        training_task(training), tiny_config, training
    )
    row = read_metrics(folder)[-1]
    for name, value in trainer.evaluate_batches(validation).items():
        assert row[f"val_{name}"] == pytest.approx(value, rel=1e-4)


def test_tensorflow_resumes_it(
    elsewhere, on_tensorflow, tmp_path, tiny_config, training, logged
):
    copy = shutil.copytree(elsewhere[0], tmp_path / "copy")
    (copy / "model.keras").unlink()
    (copy / "checkpoints/ckpt-4.npz").unlink()
    train(tiny_config, training, copy, "tp_transformer_tiny")
    assert "ckpt-3.npz (step 75)" in logged()
    assert_same_rows(*map(read_metrics, (copy, on_tensorflow)))


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_stream_is_learned(tmp_path, backend):
    train_without_tensorflow(
        backend,
        {
            "preset": "lstm",
            "hparams": "hidden_dim=16,thinking_steps=1",
            "modules": MODULE,
            "train_steps": 2,
            "batch_size": 16,
            "validation_examples": 20,
            "evaluation_examples": 8,
            "dataset": "mathematics_stream",
            "dataset_options": "evaluation_problems=8,validation_problems=60",
            "generator_processes": 1,
            "data_dir": tmp_path / "data",
            "model_dir": tmp_path / "model",
        },
    )
    (row,) = read_metrics(tmp_path / "model")
    assert row["step"] == 2
    assert 0.0 <= row["waiting_for_data"] <= 1.0
    assert f"interpolate/{MODULE}" in row

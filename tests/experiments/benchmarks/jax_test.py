"""The benchmarks on the JAX backend, in a process that has it."""

import json

import keras
import pytest

from tests.experiments.command import assert_refused
from tests.experiments.command import run_python

BENCHMARKS = """
import numpy as np

from experiments.benchmarks.train_step import preset_trainer
from tpt_keras.models import PRESETS

# A layer less is as good, and sooner compiled.
name = "tp_transformer_tiny"
PRESETS[name] = PRESETS[name].replace(num_layers=1)

ids = np.ones((3, 5), "int32")
batch = {"encoder_token_ids": ids, "decoder_token_ids": ids}, ids
model = preset_trainer(name, xla=True)
first, second = (model.train_on_batch(*batch) for _ in range(2))
assert second < first, (first, second)

# Which defines some of the same flags.
from absl import flags

for flag in flags.FLAGS.get_flags_for_module(
    "experiments.benchmarks.train_step"
):
    delattr(flags.FLAGS, flag.name)

from experiments import _cli
from experiments.benchmarks import _problems
from tests.experiments.benchmarks.decoding_test import QUESTIONS

# Drawing problems of all modules takes a minute.
_problems.middling_problems = lambda count: (QUESTIONS[:count], [])

from experiments.benchmarks import decoding

_cli.run(decoding.main)
"""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_train_step_and_decoding(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    path = tmp_path / "results.json"
    result = run_python(
        "-c",
        BENCHMARKS,
        "--noexport",
        "--preset=tp_transformer_tiny",
        "--precisions=bfloat16",
        "--batch_sizes=3",
        "--repeats=1",
        "--max_length=3",
        "--matrix_size=128",
        f"--output={path}",
    )
    assert result.status == 0, result
    # One batch size, for every one is compiled for; TensorFlow has several.
    [row] = json.loads(path.read_text())
    assert row["batch_size"] == 3
    assert "saved_model" not in row
    assert row["all_again"] > 0
    assert row["cached"] > 0


def test_decoding_exports_on_tensorflow_alone(run, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert_refused(run("benchmarks.decoding"), "--noexport")

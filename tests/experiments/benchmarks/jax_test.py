"""The benchmarks on the JAX backend, in processes that have it."""

import json
import os
import subprocess
import sys

import pytest

from tests.experiments.command import ROOT

DECODING = """
from experiments import _cli
from experiments.benchmarks import _problems

questions = ["What is 1 + 1?", "Solve 2*x = 4 for x.", "7"]
# Drawing problems of all modules takes a minute.
_problems.middling_problems = lambda count: (questions[:count], [])

from experiments.benchmarks import decoding

_cli.run(decoding.main)
"""

TRAIN_STEP = """
import numpy as np

from experiments.benchmarks.train_step import preset_trainer

ids = np.ones((3, 5), "int32")
batch = {"encoder_token_ids": ids, "decoder_token_ids": ids}, ids
model = preset_trainer("tp_transformer_tiny", xla=True)
first, second = (model.train_on_batch(*batch) for _ in range(2))
assert second < first, (first, second)
"""


def run_on_jax(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_decoding(tmp_path):
    path = tmp_path / "results.json"
    process = run_on_jax(
        DECODING,
        "--noexport",
        "--preset=tp_transformer_tiny",
        "--precisions=bfloat16",
        "--batch_sizes=1,3",
        "--repeats=1",
        "--max_length=3",
        "--matrix_size=128",
        f"--output={path}",
    )
    assert process.returncode == 0, process
    one, three = json.loads(path.read_text())
    assert (one["batch_size"], three["batch_size"]) == (1, 3)
    for row in (one, three):
        assert "saved_model" not in row
        assert row["all_again"] > 0
        assert row["cached"] > 0


@pytest.mark.slow
def test_decoding_exports_on_tensorflow_alone():
    process = run_on_jax(DECODING)
    assert process.returncode == 2, process
    assert "--noexport" in process.stderr


@pytest.mark.slow
def test_train_step():
    process = run_on_jax(TRAIN_STEP)
    assert process.returncode == 0, process

"""The benchmarks on the JAX backend, in processes that have it."""

import json

import pytest

from tests.experiments.command import assert_refused
from tests.experiments.command import run_alone
from tests.experiments.command import run_python

DECODING = """
from experiments import _cli
from experiments.benchmarks import _problems
from tests.experiments.benchmarks.decoding_test import QUESTIONS

# Drawing problems of all modules takes a minute.
_problems.middling_problems = lambda count: (QUESTIONS[:count], [])

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


@pytest.fixture(autouse=True)
def jax_in_other_processes(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")


@pytest.mark.slow
def test_decoding(tmp_path):
    path = tmp_path / "results.json"
    result = run_python(
        "-c",
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
    assert result.status == 0, result
    one, three = json.loads(path.read_text())
    assert (one["batch_size"], three["batch_size"]) == (1, 3)
    for row in (one, three):
        assert "saved_model" not in row
        assert row["all_again"] > 0
        assert row["cached"] > 0


@pytest.mark.slow
def test_decoding_exports_on_tensorflow_alone():
    assert_refused(run_alone("benchmarks.decoding"), "--noexport")


@pytest.mark.slow
def test_train_step():
    result = run_python("-c", TRAIN_STEP)
    assert result.status == 0, result

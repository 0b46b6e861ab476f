"""Every benchmark runs on tiny models; the figures are not checked."""

import json

import keras
import numpy as np
import pytest

from experiments.benchmarks import _measure
from tests.conftest import MODULE
from tests.experiments.command import assert_refused
from tests.experiments.command import run_python
from tpt_keras.models import PRESETS

QUESTIONS = ["What is 1 + 1?", "Solve 2*x = 4 for x.", "7"]
ANSWERS = ["2", "2", "-7"]


def few_problems(count):
    """Problems without drawing those of all modules, which takes a minute."""
    return (QUESTIONS * count)[:count], (ANSWERS * count)[:count]


@pytest.fixture
def measure(run, tiny_config, tmp_path, monkeypatch):
    """Runs a benchmark on tiny presets and returns its results."""
    tiny = tiny_config.replace(num_layers=1)
    for name in ("transformer", "tp_transformer", "tp_transformer_tiny"):
        monkeypatch.setitem(PRESETS, name, tiny)
    for name in ("middling_problems", "mixed_problems"):
        monkeypatch.setattr(_measure, name, few_problems)
    path = tmp_path / "results.json"

    def measure(name, *flags):
        result = run(f"benchmarks.{name}", *flags, f"--output={path}")
        assert result.status == 0, result
        return json.loads(path.read_text())

    return measure


@pytest.mark.slow
@pytest.mark.exhaustive
def test_decoding_times_every_way(measure):
    results = measure(
        "decoding",
        "--preset=tp_transformer_tiny",
        "--precisions=float32",
        "--batch_sizes=1,3",
        "--repeats=1",
        "--max_length=7",
    )
    assert [row["batch_size"] for row in results] == [1, 3]
    for row in results:
        assert min(row[n] for n in ("without_cache", "cached", "saved_model"))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_decoding_times_a_trained_model(measure, trained_model_dir):
    one, three = measure(
        "decoding",
        f"--weights={trained_model_dir}",
        "--precisions=float32",
        "--batch_sizes=1,3",
        "--questions=8",
        "--repeats=1",
        "--max_length=5",
    )
    assert (one["questions"], three["questions"]) == (1, 8)
    assert three["right"]["without_cache"] == three["right"]["float32"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_variants_are_compared(measure):
    [row] = measure(
        "variants",
        "--presets=transformer",
        "--precision=float32",
        "--repeats=1",
        "--batch_size=3",
    )
    assert min(row["step"], row["decoding"]) > 0


@pytest.mark.slow
@pytest.mark.exhaustive
def test_train_step_is_compared_with_keras_hub(measure):
    pytest.importorskip("keras_hub")
    rows = measure(
        "train_step",
        "--batch_size=3",
        "--precisions=float32",
        "--xla=false",
        "--repeats=1",
    )
    assert rows[0]["of_keras_hub"] == 1
    assert len(rows) == 3


@pytest.mark.slow
@pytest.mark.exhaustive
def test_input_pipeline_is_measured(measure, place_value_data):
    [row] = measure(
        "input_pipeline",
        f"--data_dir={place_value_data}",
        f"--modules={MODULE}",
        "--batch_sizes=16",
        "--steps=2",
    )
    assert 0 < row["source_padding"] <= row["source_padding_of_pairs"] < 1
    assert row["examples_per_second"] > 0


BENCHMARK_ON_JAX = """
from experiments import _cli
from experiments.benchmarks import _measure
from tests.experiments.benchmarks import benchmarks_test

_measure.middling_problems = benchmarks_test.few_problems

from experiments.benchmarks import decoding

_cli.run(decoding.main)
"""


@pytest.mark.slow
@pytest.mark.exhaustive
def test_decoding_runs_on_jax(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    path = tmp_path / "results.json"
    result = run_python(
        "-c",
        BENCHMARK_ON_JAX,
        "--noexport",
        "--preset=tp_transformer_tiny",
        "--precisions=bfloat16",
        "--batch_sizes=3",
        "--repeats=1",
        "--max_length=3",
        f"--output={path}",
    )
    assert result.status == 0, result
    [row] = json.loads(path.read_text())
    assert "saved_model" not in row
    assert row["cached"] > 0


def test_decoding_exports_on_tensorflow_alone(run, monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert_refused(run("benchmarks.decoding"), "--noexport")


# The generator passes whole numbers as floats to Python's random.
@pytest.mark.filterwarnings("ignore:non-integer arguments:DeprecationWarning")
@pytest.mark.slow
@pytest.mark.exhaustive
def test_real_batch_has_questions_of_like_lengths():
    inputs, targets = _measure.real_batch(16)
    questions = inputs["encoder_token_ids"]
    assert len(questions) == len(targets) == 16
    lengths = (questions != 0).sum(axis=1)
    assert lengths.max() <= 1.5 * lengths.min()
    np.testing.assert_array_equal(
        inputs["decoder_token_ids"][:, 1:], targets[:, :-1]
    )


def test_medians_are_of_interleaved_calls(monkeypatch):
    clock = [0.0]
    calls = []
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def work(name, seconds):
        def function():
            calls.append(name)
            clock[0] += seconds[calls.count(name) - 1]

        return function

    medians = _measure.interleaved_medians(
        {
            "slow start": work("slow start", [90.0, 1.0, 2.0, 50.0]),
            "steady": work("steady", [3.0] * 4),
        },
        repeats=3,
        warmup=1,
    )
    assert medians == {"slow start": 2.0, "steady": 3.0}
    assert calls == ["slow start", "steady"] * 4

"""Every benchmark runs on tiny models; the figures are not checked."""

import pytest

from experiments.benchmarks import _measure
from tpt_keras.models import PRESETS

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

QUESTIONS = ["What is 1 + 1?", "Solve 2*x = 4 for x.", "7"]
ANSWERS = ["2", "2", "-7"]


def few_problems(count):
    """Problems without those of all modules, which take a minute."""
    return (QUESTIONS * count)[:count], (ANSWERS * count)[:count]


@pytest.fixture
def measure(run, tiny_config, monkeypatch):
    """Runs a benchmark on tiny presets and returns the rows of its table."""
    monkeypatch.setitem(PRESETS, "tp_transformer", tiny_config)
    monkeypatch.setattr(_measure, "mixed_problems", few_problems)

    def measure(name, *flags):
        result = run(f"benchmarks.{name}", *flags).succeeded()
        header, _, *rows = [
            line.strip("| ").split(" | ")
            for line in result.stdout.splitlines()
            if line.startswith("|")
        ]
        return [dict(zip(header, row, strict=True)) for row in rows]

    return measure


def test_decoding_is_compared_with_pytorch(measure, trained_model_dir):
    pytest.importorskip("onnxscript")
    pytest.importorskip("torch")
    rows = measure(
        "decoding",
        f"--model={trained_model_dir}",
        "--precisions=float32,int8",
        "--batch_sizes=1,3",
        "--questions=8",
        "--repeats=1",
    )
    exported = ["ours, exported", "ours, exported, 1 thread"]
    # Two precisions, two sizes of a batch.
    assert [row["way"] for row in rows] == [
        *2 * ["pytorch", "ours", *exported, "ours, ONNX"],
        *2 * ["pytorch", "ours", "ours, ONNX"],
    ]
    for row in rows:
        assert float(row["answers/s"]) > 0
        if not row["way"].startswith("ours, exported"):
            assert row["answers as ours"] == "8 of 8"


def test_train_step_is_compared_with_pytorch(measure):
    pytest.importorskip("torch")
    rows = measure(
        "train_step",
        "--batch_size=3",
        "--batches=2",
        "--precisions=float32",
        "--repeats=1",
    )
    pytorch, ours, in_parts = rows
    assert pytorch["first loss"] == ours["first loss"] == in_parts["first loss"]
    assert pytorch["times pytorch"] == "1"
    assert float(ours["examples/s"]) > 0

import json

import pytest

from experiments.benchmarks import _problems
from tests.experiments.command import assert_refused


@pytest.mark.slow
@pytest.mark.exhaustive
def test_answers_a_second_and_waits(run, saved_model, tmp_path, monkeypatch):
    # Drawing problems of all modules takes a minute.
    monkeypatch.setattr(
        _problems, "mixed_problems", lambda count: (["1 + 1", "7"], ["2", "7"])
    )
    path = tmp_path / "results.json"
    result = run(
        "benchmarks.serving",
        f"--saved_model={saved_model}",
        "--clients=1,3",
        "--num_batch_threads=2",
        "--intra_op=1",
        "--paddings=none,powers",
        "--seconds=1",
        f"--output={path}",
    )
    assert result.status == 0, result
    rows = json.loads(path.read_text())
    assert [(row["padding"], row["clients"]) for row in rows] == [
        ("none", 1),
        ("none", 3),
        ("powers", 1),
        ("powers", 3),
    ]
    for row in rows:
        assert row["rate"] > 0
        assert 0 < row["p50"] <= row["p95"] <= row["p99"] < 2000


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_folder_without_a_model(run, tmp_path, monkeypatch):
    monkeypatch.setattr(_problems, "mixed_problems", lambda count: (["1"], []))
    result = run(
        "benchmarks.serving",
        f"--saved_model={tmp_path / 'nothing'}",
        "--intra_op=1",
        "--num_batch_threads=1",
    )
    assert result.status == 2
    # TensorFlow has said something of the machine before.
    assert str(tmp_path / "nothing") in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_refused(run):
    assert_refused(run("benchmarks.serving"), "--saved_model")
    refused = run("benchmarks.serving", "--saved_model=x", "--paddings=some")
    assert_refused(refused, "--paddings", "powers")

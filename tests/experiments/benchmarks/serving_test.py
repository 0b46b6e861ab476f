import json

import pytest

from experiments.benchmarks import _problems


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

import json

import pytest

from experiments.benchmarks import _problems

QUESTIONS = ["What is 1 + 1?", "Solve 2*x = 4 for x.", "7"]


@pytest.mark.slow
def test_measures_what_it_says(run, tmp_path, monkeypatch):
    # Drawing problems of all modules takes a minute.
    monkeypatch.setattr(
        _problems, "middling_problems", lambda count: (QUESTIONS[:count], [])
    )
    path = tmp_path / "results.json"
    result = run(
        "benchmarks.decoding",
        "--preset=tp_transformer_tiny",
        "--precisions=float32",
        "--batch_sizes=1,3",
        "--repeats=1",
        "--max_length=7",
        f"--output={path}",
    )
    assert result.status == 0, result
    one, three, first = json.loads(path.read_text())
    assert (one["batch_size"], three["batch_size"]) == (1, 3)
    for row in (one, three):
        assert row["max_length"] == 7
        for way in ("all_again", "cached", "saved_model"):
            assert row[way] > 0
    assert first["steady"] > 0
    assert first["first"] > 0

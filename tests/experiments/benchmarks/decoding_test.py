import json

import pytest

from experiments.benchmarks import _problems
from tpt_keras.models import PRESETS

QUESTIONS = ["What is 1 + 1?", "Solve 2*x = 4 for x.", "7"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_measures_what_it_says(run, tiny_config, tmp_path, monkeypatch):
    monkeypatch.setitem(PRESETS, "tp_transformer_tiny", tiny_config)
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
        "--matrix_size=128",
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


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_trained_models_real_answers(
    run, trained_model_dir, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        _problems,
        "mixed_problems",
        lambda count: (["What is 1 + 1?"] * count, ["2"] * count),
    )
    path = tmp_path / "results.json"
    result = run(
        "benchmarks.decoding",
        f"--weights={trained_model_dir}",
        "--precisions=bfloat16",
        "--batch_sizes=1,3",
        "--questions=8",
        "--repeats=1",
        "--max_length=5",
        f"--output={path}",
    )
    assert result.status == 0, result
    one, three, first = json.loads(path.read_text())
    assert (one["batch_size"], one["questions"]) == (1, 1)
    assert (three["batch_size"], three["questions"]) == (3, 8)
    for row in (one, three):
        assert row["all_again"]["same"] == row["questions"]
        assert row["bfloat16_encoder"] > 0
        assert row["bfloat16"]["rate"] > 0
    assert first["precision"] == "bfloat16"

import json

import pytest

from experiments.benchmarks import _problems
from tpt_keras.models import PRESETS

QUESTIONS = ["What is 1 + 1?", "Solve 2*x = 4 for x.", "7"]
ANSWERS = ["2", "2", "-7"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_measures_what_it_says(run, tiny_config, tmp_path, monkeypatch):
    for name, choices in (
        ("tp_transformer", {}),
        ("tp_transformer_relative", {"attention": "relative"}),
    ):
        monkeypatch.setitem(PRESETS, name, tiny_config.replace(**choices))
    # Drawing problems of all modules takes a minute.
    monkeypatch.setattr(
        _problems, "middling_problems", lambda count: (QUESTIONS, ANSWERS)
    )
    path = tmp_path / "results.json"
    result = run(
        "benchmarks.variants",
        "--presets=tp_transformer_relative",
        "--precision=float32",
        "--repeats=1",
        f"--output={path}",
    )
    assert result.status == 0, result
    assert "| `tp_transformer_relative` | " in result.stdout
    [row] = json.loads(path.read_text())
    for name in ("step", "step_seconds", "decoding", "decoding_seconds"):
        assert row[name] > 0

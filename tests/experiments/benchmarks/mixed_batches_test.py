import json

import pytest

from tpt_keras.models import PRESETS

pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_measures_what_it_says(run, tmp_path, monkeypatch):
    small = PRESETS["tp_transformer_tiny"].replace(num_layers=1)
    monkeypatch.setitem(PRESETS, "tp_transformer", small)
    path = tmp_path / "results.json"
    result = run(
        "benchmarks.mixed_batches",
        "--problems=1120",
        "--batch_size=16",
        "--batches=4",
        "--precisions=float32",
        "--matrix_size=64",
        f"--output={path}",
    )
    assert result.status == 0, result
    results = json.loads(path.read_text())
    pytorch, ours = results["pytorch"], results["float32"]
    assert ours["padding"] < 0.3 < 0.4 < pytorch["padding"]
    for name in ("pytorch", "float32"):
        assert len(results[name]["batch_seconds"]) == 4
        rate = results[name]["real_tokens_per_second"]
        assert f"| {rate:.0f} | " in result.stdout

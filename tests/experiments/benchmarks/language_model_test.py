import json

import pytest

from tpt_keras.language_model import XL_PRESETS


@pytest.mark.slow
@pytest.mark.exhaustive
def test_measures_what_it_says(run, tmp_path, monkeypatch):
    small = XL_PRESETS["transformer_xl_base"].replace(
        hidden_dim=16, intermediate_dim=16, num_heads=2, num_layers=2
    )
    monkeypatch.setitem(XL_PRESETS, "transformer_xl_base", small)
    path = tmp_path / "results.json"
    result = run(
        "benchmarks.language_model",
        "--context_lengths=8,16",
        "--segment_length=4",
        "--repeats=1",
        f"--output={path}",
    )
    assert result.status == 0, result
    for row, length in zip(json.loads(path.read_text()), (8, 16), strict=True):
        assert row["context_length"] == length
        assert row["times"] == row["again"] / row["memory"] > 0
        assert f"| {length} | " in result.stdout

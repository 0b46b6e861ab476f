import json

import pytest


# The growth itself is what the score's own test asks XLA for.
@pytest.mark.slow
@pytest.mark.exhaustive
def test_measures_what_it_says(run, tmp_path):
    path = tmp_path / "results.json"
    result = run(
        "benchmarks.memory",
        "--lengths=8,256",
        "--batch_size=2",
        f"--output={path}",
    )
    assert result.status == 0, result
    short, long = json.loads(path.read_text())
    assert (short["length"], long["length"]) == (8, 256)
    # The tensor of two rows, the map and some noise.
    assert 2**27 < long["whole tensor"] - short["whole tensor"] < 2**29
    assert 2**24 < long["contracted"] < long["whole tensor"]
    assert "| 256 | " in result.stdout

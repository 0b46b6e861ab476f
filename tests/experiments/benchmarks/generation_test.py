import json
import os

import pytest

from tests.conftest import MODULE
from tests.experiments.command import assert_refused

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.skipif(
        not os.path.exists("/proc/self/status"), reason="looks into /proc"
    ),
]


def test_a_tiny_run(run, tmp_path):
    path = tmp_path / "results.json"
    result = run(
        "benchmarks.generation",
        f"--modules={MODULE}",
        "--train_examples=90",
        "--evaluation_examples=20",
        "--num_workers=1",
        f"--output={path}",
    )
    assert result.status == 0, result
    results = json.loads(path.read_text())
    assert results["cpu_seconds"] > 0
    assert f"{results['seconds']:.0f} s, " in result.stdout
    # TensorFlow is in the main process alone.
    worker = results["other_megabytes"][0]
    assert 20 < worker < 200 < results["main_megabytes"] < 2000
    assert f"main process {results['main_megabytes']:.0f} MB" in result.stdout


def test_prepare_data_refuses(run):
    result = run("benchmarks.generation", "--modules=numbers__nothing")
    assert_refused(result, "prepare_data --modules=numbers__nothing")

"""Output that is no terminal is lines, with all the figures in them."""

import json

import pytest

from tests.conftest import MODULE
from tests.experiments.command import run_alone
from tpt_keras.training.metrics_log import read_metrics


def lines_of(result):
    """The lines that a command printed, which held no control characters."""
    assert result.status == 0, result
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert all(line.isprintable() for line in lines), result.stdout
    return lines


@pytest.mark.slow
def test_preparing_and_training(run, tmp_path):
    data_dir = tmp_path / "data"
    model_dir = tmp_path / "model"
    lines = lines_of(
        run(
            "prepare_data",
            f"--modules={MODULE}",
            f"--data_dir={data_dir}",
            "--train_examples=90",
            "--evaluation_examples=12",
            "--num_workers=1",
        )
    )
    assert lines[0].startswith(f"{MODULE}: 30 train_easy, ")
    path, counts = lines[-1].split(": ", 1)
    assert path.startswith(str(data_dir))
    assert json.loads(counts)["extrapolate"] == 12

    lines = lines_of(
        run_alone(
            "train",
            "--preset=tp_transformer_tiny",
            "--hparams=hidden_dim=16,intermediate_dim=32,num_layers=1,"
            "num_heads=2",
            f"--modules={MODULE}",
            f"--data_dir={data_dir}",
            f"--model_dir={model_dir}",
            "--train_steps=4",
            "--steps_per_checkpoint=2",
            "--steps_per_evaluation=4",
            "--validation_examples=10",
            "--batch_size=16",
        )
    )
    assert lines[::2] == ["Epoch 1/2", "Epoch 2/2"]
    for line, row in zip(lines[1::2], read_metrics(model_dir), strict=True):
        figures = dict(
            figure.split(": ") for figure in line.split(" - ") if ": " in figure
        )
        for name, value in row.items():
            if name != "step" and "/" not in name:
                assert float(figures[name]) == pytest.approx(value, abs=1e-4)
    assert "val_sequence_accuracy" in figures

"""The configuration that a command line asks for, mostly without training."""

import os
import subprocess

import numpy as np
import pytest

from tests.conftest import MODULE
from tests.experiments.command import ROOT
from tests.experiments.command import assert_refused
from tpt_keras.models.stored import load_model
from tpt_keras.training import train as train_module
from tpt_keras.training.backends.backend import read_workers

CONFIGS = sorted((ROOT / "experiments" / "configs").glob("*.cfg"))
# Flagfiles of tune and replicate set the layers of several models.
OF_ONE_MODEL = [
    path for path in CONFIGS if "--num_layers" not in path.read_text()
]


@pytest.fixture
def asked_for(run, monkeypatch, tmp_path):
    """The configuration and the preset that a command line asks for."""

    def asked_for(*flags):
        calls = []
        monkeypatch.setattr(
            train_module,
            "train",
            lambda *args, **kwargs: calls.append((args, kwargs)),
        )
        run("train", f"--model_dir={tmp_path / 'model'}", *flags).succeeded()
        [(args, kwargs)] = calls
        return args[1], kwargs["preset"]

    return asked_for


def test_fields_are_flags(asked_for):
    config, preset = asked_for(
        "--modules=numbers__place_value,numbers__gcd,algebra__linear_1d",
        "--module_weights=numbers__place_value=2,numbers__gcd=0.5",
        "--init_from=models/a",
    )
    assert preset == "tp_transformer"
    assert config.run.init_from == "models/a"
    # Weights belong to the names that they are given with.
    assert dict(
        zip(config.data.modules, config.data.module_weights, strict=True)
    ) == {
        "algebra__linear_1d": 1.0,
        "numbers__gcd": 0.5,
        "numbers__place_value": 2.0,
    }


@pytest.mark.parametrize("path", OF_ONE_MODEL, ids=lambda path: path.stem)
def test_every_flagfile_is_valid(asked_for, path):
    module = f"--modules={MODULE}"
    config, preset = asked_for(f"--flagfile={path}", module)
    assert f"--preset={preset}" in path.read_text()
    # The default is the paper's training.
    assert (config == asked_for(module)[0]) == (path.stem == "paper")


def test_flagfile_includes_others(run, asked_for, tmp_path):
    own, other = tmp_path / "own.cfg", tmp_path / "other.cfg"
    own.write_text(f"# A comment\n\n--flagfile={other}\n--batch_size=7\n")
    other.write_text("--flagfile=demo.cfg\n--batch_size=6\n--seed=6\n")
    config, preset = asked_for(f"--flagfile={own}", "--schedule=linear")
    assert (config.data.batch_size, config.run.seed) == (7, 6)
    assert config.optimizer.schedule == "linear"
    # Those of the package's flagfile.
    assert preset == "tp_transformer_tiny"
    assert config.data.modules == (MODULE,)
    other.write_text(f"--flagfile={own}")
    refused = run("train", f"--flagfile={own}")
    assert_refused(refused, "--flagfile", "own.cfg", "includes itself")
    own.write_bytes(b"--seed=\xff")
    for path in (own, tmp_path):
        refused = run("train", f"--flagfile={path}")
        assert_refused(refused, "--flagfile", path)


@pytest.mark.slow
def test_shipped_solver_trains_on(run, monkeypatch, place_value_data, tmp_path):
    """Its weights fit the flagfile's model."""
    monkeypatch.setattr(train_module, "_fit", lambda *arguments: None)
    folder = tmp_path / "model"
    data = f"--data_dir={place_value_data}", f"--modules={MODULE}"
    flags = "--flagfile=solver_gpu.cfg", "--validation_examples=20", *data
    run("train", *flags, f"--model_dir={folder}").succeeded()
    model = load_model(folder)
    shipped = load_model("tp_transformer_mathematics")
    order = {"answer_order": "minutes_first"}
    assert model.config == shipped.config.replace(**order)
    for new, old in zip(model.weights, shipped.weights, strict=True):
        np.testing.assert_array_equal(new, old)


STUBS = {
    "scontrol": '[ "$*" = "show hostnames n[1-2]" ] && printf "n1\\nn2\\n"',
    # It gives every option with an equals sign.
    "srun": "while [[ $1 = --* ]]; do shift; done\n"
    'for i in 0 1; do SLURM_PROCID=$i "$@"; done',
    "tpt_keras": 'printf "%s\\n" "$TF_CONFIG" "$*"',
}


def test_slurm_gives_every_worker_its_variable(tmp_path, monkeypatch):
    for name, text in STUBS.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "120042")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    script = ROOT / "experiments" / "configs" / "train.sbatch"
    lines = subprocess.check_output(
        ["bash", script, "--model_dir=a b"], text=True
    ).splitlines()
    assert lines[1::2] == ["train --model_dir=a b"] * 2
    for index, line in enumerate(lines[::2]):
        monkeypatch.setenv("TF_CONFIG", line)
        assert read_workers() == (["n1:20042", "n2:20042"], index)

"""The configuration that a command line asks for, without training."""

import pytest

from tests.conftest import MODULE
from tests.experiments.command import ROOT
from tpt_keras.training import train as train_module

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
        result = run("train", f"--model_dir={tmp_path / 'model'}", *flags)
        assert result.status == 0, result.stderr
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

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
    """The arguments of `train` for a command line."""

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


def test_weights_belong_to_the_names_that_they_are_given_with(asked_for):
    config, _ = asked_for(
        "--modules=numbers__place_value,numbers__gcd,algebra__linear_1d",
        "--module_weights=numbers__place_value=2,numbers__gcd=0.5",
    )
    assert dict(
        zip(config.data.modules, config.data.module_weights, strict=True)
    ) == {
        "algebra__linear_1d": 1.0,
        "numbers__gcd": 0.5,
        "numbers__place_value": 2.0,
    }


def test_fields_are_flags(asked_for):
    flags = ["--modules=numbers__*"]
    config, preset = asked_for(*flags)
    assert preset == "tp_transformer"
    assert config.data.module_weights == ()
    assert config.run.init_from == ""
    config, _ = asked_for(*flags, "--init_from=models/a")
    assert config.run.init_from == "models/a"


@pytest.mark.parametrize("path", OF_ONE_MODEL, ids=lambda path: path.stem)
def test_every_flagfile_is_valid(asked_for, path):
    _, preset = asked_for(f"--flagfile={path}", f"--modules={MODULE}")
    assert f"--preset={preset}" in path.read_text()

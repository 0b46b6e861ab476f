import pytest

from tpt_keras.training import train as train_module


@pytest.fixture
def asked_for(run, monkeypatch, tmp_path):
    """The configuration that a command line asks for."""

    def asked_for(*flags):
        configs = []
        monkeypatch.setattr(
            train_module,
            "train",
            lambda model_config, config, *args, **kwargs: configs.append(
                config
            ),
        )
        result = run("train", f"--model_dir={tmp_path / 'model'}", *flags)
        assert result.status == 0, result.stderr
        [config] = configs
        return config

    return asked_for


def test_weights_belong_to_the_names_that_they_are_given_with(asked_for):
    config = asked_for(
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


def test_without_weights(asked_for):
    assert asked_for("--modules=numbers__*").data.module_weights == ()


def test_a_start_from_another_model(asked_for):
    flags = ["--modules=numbers__gcd"]
    assert asked_for(*flags).run.init_from == ""
    run = asked_for(*flags, "--init_from=models/a").run
    assert run.init_from == "models/a"

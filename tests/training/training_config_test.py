import dataclasses
import json

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.training.training_config import TrainingConfig

NEEDED = {"modules": ["m"], "data_dir": "data", "train_steps": 10}


def test_defaults_are_the_papers():
    config = TrainingConfig(**NEEDED)
    papers = {
        "batch_size": 1024,
        "learning_rate": 1e-4,
        "schedule": "constant",
        "warmup_steps": 0,
        "beta_1": 0.9,
        "beta_2": 0.995,
        "adam_epsilon": 1e-8,
        "global_clipnorm": 0.1,
    }
    assert {name: getattr(config, name) for name in papers} == papers
    assert config.modules == ("m",)


def test_goes_through_json():
    config = TrainingConfig(**NEEDED, schedule="cosine", warmup_steps=3)
    revived = TrainingConfig(
        **json.loads(json.dumps(dataclasses.asdict(config)))
    )
    assert revived == config
    assert hash(revived) == hash(config)


def test_modules_must_be_named():
    with pytest.raises(UsageError, match="at least one module"):
        TrainingConfig(**{**NEEDED, "modules": ()})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("module_weights", ("abc",), "must be numbers.*abc"),
        ("seed", -1, "seed must be in"),
        ("learning_rate", float("nan"), "must be positive.*nan"),
        ("beta_2", 1.0, "beta_2 must be in"),
        ("adam_epsilon", -1e-8, "adam_epsilon must be in"),
    ],
)
def test_values_that_make_no_sense(name, value, message):
    with pytest.raises(UsageError, match=message):
        TrainingConfig(**NEEDED, **{name: value})


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainingConfig(**NEEDED).seed = 1


@pytest.mark.parametrize(
    "name",
    [
        "train_steps",
        "batch_size",
        "learning_rate",
        "global_clipnorm",
        "validation_examples",
        "steps_per_evaluation",
    ],
)
@pytest.mark.parametrize("value", [0, -1])
def test_what_must_be_positive(name, value):
    with pytest.raises(UsageError, match=f"{name} must be positive.*{value}"):
        TrainingConfig(**{**NEEDED, name: value})


@pytest.mark.parametrize("steps", [-1, 10, 11])
def test_warm_up_must_end_before_the_training(steps):
    with pytest.raises(UsageError, match=rf"warmup_steps.* {steps} of 10\."):
        TrainingConfig(**NEEDED, warmup_steps=steps)


@pytest.mark.parametrize("steps", [0, 9])
def test_warm_ups_that_are_fine(steps):
    assert TrainingConfig(**NEEDED, warmup_steps=steps).warmup_steps == steps


def test_unknown_schedule():
    with pytest.raises(
        UsageError,
        match=r"Unknown schedule 'linear'. Known schedules: constant, cosine\.",
    ):
        TrainingConfig(**NEEDED, schedule="linear")

import dataclasses
import json

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.training.training_config import TrainingConfig
from tpt_keras.training.training_config import parse_module_weights

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
        "optimizer": "adam",
        "weight_decay": 0.0,
        "precision": "float32",
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
        ("train_steps", "10", r"train_steps.? takes .* int\..*'10' .*str"),
        ("batch_size", 2.5, r"batch_size.? takes .* int\. Received: 2\.5"),
        ("learning_rate", None, r"learning_rate.? takes .* float\..*None"),
        ("module_weights", ("abc",), "takes name=weight.*abc"),
        ("module_weights", (1.0, 2.0), "2 module_weights for 1 modules"),
        ("module_weights", (float("nan"),), "positive and finite.*nan"),
        ("module_weights", (float("inf"),), "positive and finite.*inf"),
        ("module_weights", (0.0,), r"positive and finite.* 0\.0"),
        ("module_weights", (-1.0,), r"positive and finite.*-1\.0"),
        ("seed", -1, "seed must be in"),
        ("learning_rate", float("nan"), "must be positive.*nan"),
        ("beta_1", -0.1, "beta_1 must be in.*-0.1"),
        ("beta_2", 1.0, "beta_2 must be in"),
        ("weight_decay", 1.0, r"weight_decay must be in.*1\.0"),
        ("weight_decay", -0.1, "weight_decay must be in.*-0.1"),
        ("adam_epsilon", -1e-8, "adam_epsilon must be in"),
    ],
)
def test_values_that_make_no_sense(name, value, message):
    with pytest.raises(UsageError, match=message):
        TrainingConfig(**{**NEEDED, name: value})


def test_weights_by_name():
    modules = ("a", "b", "c")
    assert parse_module_weights(["c=2", " a = 0.5"], modules) == (0.5, 1.0, 2.0)
    assert parse_module_weights([], modules) == ()
    config = TrainingConfig(modules, module_weights=["b=3"])
    assert config.module_weights == (1.0, 3.0, 1.0)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["2", "1"], "takes name=weight, such as a=2.*'2'"),
        (["a="], "takes name=weight.*'a='"),
        (["a=much"], "takes name=weight.*'a=much'"),
        (["=2"], "Unknown module of module_weights ''"),
        (["A=2"], "Unknown module of module_weights 'A'.*a, b"),
        (["a=2", "a=3"], "names a twice"),
    ],
)
def test_weights_by_name_that_make_no_sense(items, message):
    with pytest.raises(UsageError, match=message):
        parse_module_weights(items, ("a", "b"))


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
        "steps_per_checkpoint",
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


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("schedule", "constant, cosine"),
        ("optimizer", "adam, adamw, lion, muon"),
        ("precision", "float32, mixed_bfloat16, mixed_float16"),
    ],
)
def test_unknown_names(name, known):
    with pytest.raises(UsageError) as caught:
        TrainingConfig(**NEEDED, **{name: "other"})
    assert str(caught.value).startswith(f"Unknown {name} 'other'.")
    assert known in str(caught.value)


@pytest.mark.parametrize(
    ("checkpoint", "evaluation", "train_steps", "interval"),
    [
        (200, 1000, 10**6, 200),
        (200, 200, 10**6, 200),
        # An evaluation comes with a checkpoint, so that the rarer one gives.
        (200, 100, 10**6, 100),
        (200, 130, 10**6, 130),
        # A training that is shorter than either.
        (200, 1000, 10, 10),
        (3, 6, 10, 3),
    ],
)
def test_the_interval(checkpoint, evaluation, train_steps, interval):
    config = TrainingConfig(
        **NEEDED | {"train_steps": train_steps},
        steps_per_checkpoint=checkpoint,
        steps_per_evaluation=evaluation,
    )
    assert config.interval == interval


@pytest.mark.parametrize(("checkpoint", "evaluation"), [(2, 3), (200, 1001)])
def test_evaluations_must_fall_on_checkpoints(checkpoint, evaluation):
    with pytest.raises(
        UsageError, match=f"multiple of.*{evaluation} and {checkpoint}"
    ):
        TrainingConfig(
            **NEEDED,
            steps_per_checkpoint=checkpoint,
            steps_per_evaluation=evaluation,
        )

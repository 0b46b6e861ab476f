"""The nested configuration and its flat names."""

import dataclasses
import json

import pytest

from tpt_keras.errors import UsageError
from tpt_keras.training.config import MAY_CHANGE
from tpt_keras.training.config import DataConfig
from tpt_keras.training.config import RunConfig
from tpt_keras.training.config import TrainingConfig
from tpt_keras.training.config import parse_module_weights
from tpt_keras.training.optimizers import OPTIMIZERS
from tpt_keras.training.optimizers import Adam
from tpt_keras.training.optimizers import Lion

NEEDED = {"modules": ["m"], "train_steps": 10}


def make(**fields):
    return TrainingConfig.from_flat(**{**NEEDED, **fields})


def assert_refused(field, **fields):
    with pytest.raises(UsageError) as caught:
        make(**fields)
    assert field in str(caught.value)


def test_flat_names_make_the_nested_configuration():
    config = make(
        batch_size=7, optimizer="lion", beta_2=0.99, on_nan="rollback"
    )
    assert config == TrainingConfig(
        DataConfig(["m"], batch_size=7),
        Lion(beta_2=0.99),
        RunConfig(train_steps=10, on_nan="rollback"),
    )
    assert TrainingConfig.from_flat(**config.flat()) == config


def test_flat_names_are_unique():
    config = TrainingConfig(DataConfig(["m"]))
    sections = (config.data, config.optimizer, config.run)
    assert len(config.flat()) == 1 + sum(
        len(dataclasses.fields(section)) for section in sections
    )


def test_configuration_survives_json():
    config = make(schedule="cosine", warmup_steps=3, optimizer="muon")
    stored = json.loads(json.dumps(config.to_stored()))
    revived = TrainingConfig.from_stored(stored)
    assert revived == config
    assert hash(revived) == hash(config)


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"data": {}, "optimizer": {"name": "adam"}, "run": {}},
        {"data": {"modules": ["m"]}, "optimizer": {"name": "sgd"}, "run": {}},
        {"data": {"modules": ["m"]}, "optimizer": {"name": "adam"}, "run": 3},
        {
            "data": {"modules": ["m"], "batch_size": "7"},
            "optimizer": {"name": "adam"},
            "run": {},
        },
    ],
)
def test_damaged_stored_configuration_is_refused(stored):
    with pytest.raises(UsageError):
        TrainingConfig.from_stored(stored)


def test_another_optimizer_keeps_the_values_that_were_set():
    config = make(learning_rate=0.5, beta_1=0.8, adam_epsilon=1e-5)
    lion = config.replace(optimizer="lion").optimizer
    assert lion == Lion(learning_rate=0.5, beta_1=0.8)
    adamw = config.replace(optimizer="adamw").optimizer
    assert adamw.weight_decay == OPTIMIZERS["adamw"]().weight_decay > 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[
            (name, 0)
            for name in ("train_steps", "batch_size", "keep_checkpoints")
        ],
        *[
            (name, -1)
            for name in ("seed", "evaluation_examples", "train_minutes")
        ],
        ("batch_size", 2.5),
        ("train_steps", "10"),
        ("jit_compile", 1),
        ("learning_rate", None),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("global_clipnorm", float("inf")),
        ("beta_1", -0.1),
        ("beta_2", 1.0),
        ("weight_decay", 1.0),
        ("adam_epsilon", -1e-8),
        ("seed", 2**32),
        ("schedule", "linear"),
        ("optimizer", "sgd"),
        ("precision", "float64"),
        ("on_nan", "ignore"),
        ("modules", ()),
        ("text_file", "text.txt"),
        ("steps_per_execution", 3),
        ("profile_steps", ("5",)),
        ("profile_steps", ("6", "5")),
        ("profile_steps", ("0", "3")),
        ("profile_steps", ("five", "6")),
        ("momentum", 0.9),
        *[
            ("module_weights", weights)
            for weights in (
                ("abc",),
                ("m=",),
                ("m=much",),
                ("M=2",),
                ("m=2", "m=3"),
                (1.0, 2.0),
                (0.0,),
                (float("inf"),),
                (float("nan"),),
            )
        ],
    ],
)
def test_wrong_value_is_refused_with_its_field(field, value):
    assert_refused(field, **{field: value})


def test_field_of_another_optimizer_is_refused():
    assert_refused("adam_epsilon", optimizer="lion", adam_epsilon=1e-7)


@pytest.mark.parametrize("steps", [10, 11])
def test_warm_up_longer_than_the_training_names_its_field(steps):
    with pytest.raises(UsageError) as caught:
        make(warmup_steps=steps)
    assert caught.value.field == "warmup_steps"
    assert make(warmup_steps=9).optimizer.warmup_steps == 9


def test_module_weights_are_given_by_name():
    modules = ("a", "b", "c")
    assert parse_module_weights(["c=2", " a = 0.5"], modules) == (0.5, 1.0, 2.0)
    assert parse_module_weights([], modules) == ()
    config = DataConfig(modules, module_weights=["b=3"])
    assert config.module_weights == (1.0, 3.0, 1.0)


@pytest.mark.parametrize(
    ("checkpoint", "evaluation", "train_steps", "interval"),
    [
        (200, 1000, 10**6, 200),
        (200, 130, 10**6, 130),
        (200, 1000, 10, 10),
        (3, 6, 10, 3),
    ],
)
def test_interval_is_the_smallest(
    checkpoint, evaluation, train_steps, interval
):
    run = RunConfig(
        train_steps=train_steps,
        steps_per_checkpoint=checkpoint,
        steps_per_evaluation=evaluation,
    )
    assert run.interval == interval


def test_evaluations_fall_on_checkpoints():
    assert_refused(
        "steps_per_evaluation", steps_per_checkpoint=2, steps_per_evaluation=3
    )


def test_only_fields_of_the_arithmetic_may_change():
    assert {"on_nan", "data_dir", "gradient_accumulation_steps"} <= MAY_CHANGE
    assert not {"seed", "learning_rate", "batch_size"} & MAY_CHANGE


def test_configuration_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Adam().learning_rate = 1.0

"""The nested configuration and its flat names."""

import dataclasses

import pytest

from tests.refusals import refused
from tpt_keras.errors import UsageError
from tpt_keras.training.config import OPTIMIZERS
from tpt_keras.training.config import DataConfig
from tpt_keras.training.config import Muon
from tpt_keras.training.config import RunConfig
from tpt_keras.training.config import TrainingConfig

NEEDED = {"modules": ["m"], "train_steps": 10}


def make(**fields):
    return TrainingConfig.from_flat(**{**NEEDED, **fields})


def assert_refused(field, **fields):
    with refused(part=field):
        make(**fields)


def test_flat_names_make_the_nested_configuration():
    config = make(batch_size=7, optimizer="muon", beta_2=0.99, seed=3)
    assert config == TrainingConfig(
        DataConfig(["m"], batch_size=7),
        Muon(beta_2=0.99),
        RunConfig(train_steps=10, seed=3),
    )
    assert TrainingConfig.from_flat(**config.flat()) == config
    # They are unique.
    sections = (config.data, config.optimizer, config.run)
    fields = [f for section in sections for f in dataclasses.fields(section)]
    assert len(config.flat()) == len(fields)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizer_is_named_by_its_row(optimizer):
    config = make(optimizer=optimizer)
    assert config.optimizer.optimizer == optimizer
    assert TrainingConfig.from_stored(config.to_stored()) == config
    # Another name would belong to other fields.
    with pytest.raises(TypeError):
        OPTIMIZERS[optimizer](optimizer="adam")


DATA, ADAM = {"modules": ["m"]}, {"optimizer": "adam"}


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"data": {}, "optimizer": ADAM, "run": {}},
        {"data": DATA, "optimizer": {"optimizer": "sgd"}, "run": {}},
        {"data": DATA, "optimizer": ADAM, "run": 3},
        {"data": {**DATA, "batch_size": "7"}, "optimizer": ADAM, "run": {}},
        {"data": DATA, "optimizer": ADAM, "run": {"curriculum": 1}},
    ],
)
def test_damaged_stored_configuration_is_refused(stored):
    with pytest.raises(UsageError):
        TrainingConfig.from_stored(stored)


def test_another_optimizer_keeps_the_values_that_were_set():
    config = make(learning_rate=0.5, beta_1=0.8, adam_epsilon=1e-5)
    muon = config.replace(optimizer="muon", momentum=0.5)
    assert muon.optimizer == Muon(
        learning_rate=0.5, beta_1=0.8, adam_epsilon=1e-5, momentum=0.5
    )
    assert muon.optimizer.weight_decay > 0
    assert muon.replace(optimizer="adam") == config


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train_steps", 0),
        ("train_minutes", -1),
        ("batch_size", 2.5),
        ("train_steps", "10"),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("global_clipnorm", float("inf")),
        ("beta_2", 1.0),
        ("weight_decay", 1.0),
        ("seed", 2**32),
        ("schedule", "quadratic"),
        ("optimizer", "sgd"),
        ("precision", "mixed_float16"),
        ("modules", ()),
        ("text_file", "text.txt"),
        ("momentum", 0.9),
        ("warmup_steps", 10),
        ("warmup_steps", 11),
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


def test_fields_that_do_not_fit_are_refused():
    assert_refused(
        "steps_per_evaluation", steps_per_checkpoint=2, steps_per_evaluation=3
    )


def test_module_weights_are_given_by_name():
    modules = ("a", "b", "c")
    config = DataConfig(modules, module_weights=["c=2", " a = 0.5"])
    assert config.module_weights == (0.5, 1.0, 2.0)
    assert DataConfig(modules).module_weights == ()


@pytest.mark.parametrize(("evaluation", "interval"), [(1000, 200), (130, 130)])
def test_interval_is_the_smaller(evaluation, interval):
    run = RunConfig(steps_per_checkpoint=200, steps_per_evaluation=evaluation)
    assert run.interval == interval

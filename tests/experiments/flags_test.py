"""The flags of the training are the fields of its two configurations."""

import dataclasses
import importlib
import sys

import pytest
from absl import flags

from tests.experiments.command import ROOT
from tpt_keras.training.run_options import RunOptions
from tpt_keras.training.training_config import TrainingConfig


@pytest.fixture
def train_flags():
    sys.modules.pop("experiments.train", None)
    importlib.import_module("experiments.train")
    found = flags.FLAGS.get_flags_for_module("experiments.train")
    yield {flag.name: flag for flag in found}
    for flag in found:
        delattr(flags.FLAGS, flag.name)
    del sys.modules["experiments.train"]


def test_the_help_is_the_docstrings(train_flags):
    assert train_flags["schedule"].help == (
        '"constant", or "cosine": down to zero at the last step, or when the '
        "train_minutes are over."
    )
    assert train_flags["steps_per_checkpoint"].help.endswith(
        "rows of the metrics' log, if there is no evaluation earlier."
    )
    assert train_flags["init_from"].help.endswith("Empty: new weights.")


@pytest.mark.parametrize("config_class", [TrainingConfig, RunOptions])
def test_every_field_has_a_flag_with_its_default(train_flags, config_class):
    for field in dataclasses.fields(config_class):
        assert train_flags[field.name].help
        if field.name == "modules":
            continue  # without a default
        default = train_flags[field.name].default
        if isinstance(field.default, tuple):
            default = tuple(default)
        assert default == field.default, field.name


def test_no_field_is_in_both():
    """Or one flag would set two things."""
    names = [
        {field.name for field in dataclasses.fields(config_class)}
        for config_class in (TrainingConfig, RunOptions)
    ]
    assert not names[0] & names[1]


def test_the_papers_flagfile_is_the_default(train_flags):
    """So that the recipe stays what it is when a default changes."""
    flags.FLAGS(["train", f"--flagfile={ROOT}/experiments/configs/paper.cfg"])
    values = {
        name: flags.FLAGS[name].value
        for name in train_flags
        if flags.FLAGS[name].present
    }
    flags.FLAGS.unparse_flags()
    assert values == {
        "preset": "tp_transformer",
        "train_steps": 1_000_000,
        "batch_size": 1024,
        "learning_rate": 1e-4,
        "schedule": "constant",
        "warmup_steps": 0,
        "beta_1": 0.9,
        "beta_2": 0.995,
        "adam_epsilon": 1e-8,
        "global_clipnorm": 0.1,
    }

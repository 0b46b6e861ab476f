"""The flags of the training are the fields of its two configurations."""

import importlib
import sys

import pytest
from absl import flags

from tests.experiments.command import ROOT
from tpt_keras.training.config import DataConfig
from tpt_keras.training.config import TrainingConfig


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
    for name in ("schedule", "optimizer", "beta_2", "init_from"):
        assert train_flags[name].help.endswith(".")
        assert "`" not in train_flags[name].help


def test_every_field_has_a_flag_with_its_default(train_flags):
    config = TrainingConfig(DataConfig(["m"]))
    for name, expected in config.flat().items():
        assert train_flags[name].help
        if name == "modules":
            continue  # without a default
        default = train_flags[name].default
        if isinstance(expected, tuple):
            default = tuple(default)
        assert default == expected, name


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

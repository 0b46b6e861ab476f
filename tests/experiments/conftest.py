import functools

import pytest

from tests.conftest import MODULE
from tests.experiments import command

TINY = (
    "--num_layers=1",
    "--num_heads=2",
    "--train_steps=2",
    "--steps_per_checkpoint=2",
    "--steps_per_evaluation=2",
    "--validation_examples=20",
    "--batch_size=16",
)


@pytest.fixture(autouse=True)
def restored_verbosity():
    """Restores the logging level that a command sets."""
    from absl import logging

    verbosity = logging.get_verbosity()
    yield
    logging.set_verbosity(verbosity)


@pytest.fixture
def run(capfd):
    """`command.run_here` with its first argument."""
    return functools.partial(command.run_here, capfd)


@pytest.fixture
def run_tiny(run, place_value_data):
    """Runs a command that trains several models, with tiny ones."""

    def run_tiny(name, *flags):
        return run(
            name,
            f"--flagfile={name}.cfg",
            *TINY,
            f"--modules={MODULE}",
            f"--data_dir={place_value_data}",
            *flags,
        )

    return run_tiny

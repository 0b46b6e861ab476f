import functools

import pytest

from tests.experiments import command


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

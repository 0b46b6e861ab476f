import functools

import pytest

from tests.experiments import command


@pytest.fixture(autouse=True)
def restored_verbosity():
    """What a command sets in the process that it thinks is its own."""
    from absl import logging

    verbosity = logging.get_verbosity()
    yield
    logging.set_verbosity(verbosity)


@pytest.fixture
def run(capfd):
    """`command.run_here` with its first argument."""
    return functools.partial(command.run_here, capfd)

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


@pytest.fixture(scope="session")
def saved_model(trained_model_dir, tmp_path_factory):
    """The folder of an exported model's versions."""
    from tpt_keras.models.load_model import load_model
    from tpt_keras.serving.export import export

    folder = tmp_path_factory.mktemp("saved_models") / "model"
    export(load_model(trained_model_dir), folder)
    return folder

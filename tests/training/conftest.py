import pytest


@pytest.fixture(scope="module")
def model_config(tiny_config):
    return tiny_config.replace(dropout=0.1)


@pytest.fixture
def logged(caplog):
    """Function that returns the log since its last call."""
    caplog.set_level("INFO", "tpt_keras")

    def logged():
        text = caplog.text
        caplog.clear()
        return text

    return logged

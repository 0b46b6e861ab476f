import pytest


@pytest.fixture
def logged(caplog):
    """Function that returns the log since its last call."""
    caplog.set_level("INFO", "tpt_keras")

    def logged():
        text = caplog.text
        caplog.clear()
        return text

    return logged

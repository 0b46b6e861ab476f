"""What `tpt_keras.serving` offers, without what it does not need."""

import pytest

from tpt_keras import serving


@pytest.mark.parametrize("name", serving.__all__)
def test_every_name(name):
    assert getattr(serving, name).__name__ == name
    assert name in dir(serving)


def test_other_names():
    with pytest.raises(AttributeError):
        serving.Client  # noqa: B018

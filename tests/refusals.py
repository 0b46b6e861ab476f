"""One way to expect that something is refused."""

import contextlib

import pytest

from tpt_keras.errors import UsageError


@contextlib.contextmanager
def refused(field=..., path=..., part="", error=UsageError):
    """Expects an error in one line.

    Args:
        field: The field that it is to be of; any, if it is not given.
        path: Its path, likewise.
        part: Text that it has.
        error: Its class.
    """
    with pytest.raises(error) as caught:
        yield
    assert field in (..., caught.value.field)
    assert path is ... or str(path) == caught.value.path
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)

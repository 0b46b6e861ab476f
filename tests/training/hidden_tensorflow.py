"""Hides TensorFlow, as if it were not installed."""

import sys


class _Hiding:
    """A finder of modules that finds all but TensorFlow.

    Args:
        finder: The finder whose place it takes.
    """

    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tensorflow":
            return None
        return self._finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self._finder, name)


def hide():
    """Hides it. Called before anything has imported it."""
    assert "tensorflow" not in sys.modules
    sys.meta_path[:] = map(_Hiding, sys.meta_path)

"""Hides TensorFlow and its datasets, as if they were not installed."""

import sys


class _Hiding:
    """A finder of modules that finds all but the hidden ones.

    Args:
        finder: The finder whose place it takes.
    """

    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tensorflow_datasets"):
            return None
        return self._finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self._finder, name)


def hide():
    """Hides them. Called before anything has imported them."""
    assert "tensorflow" not in sys.modules
    sys.meta_path[:] = map(_Hiding, sys.meta_path)

class ProblemSelection:
    """Some problems of a source.

    Args:
        source: A `ProblemSource`, or a part of one.
        indices: Integer array `(count,)`: which.
    """

    def __init__(self, source, indices):
        self._source = source
        self._indices = indices

    def __len__(self):
        return len(self._indices)

    def read(self, indices):
        """Reads problems of the selection; see `ProblemSource.read`."""
        return self._source.read(self._indices[indices])

from tpt_keras.data_generators.permutation import permute


class ProblemSlice:
    """A random part of a source: to cut validation problems from training.

    Args:
        source: A `ProblemSource`.
        start: First problem of the part, in the shuffled order.
        stop: Where the part ends. Defaults to the source's end.
        seed: Seed of the order; slices of one seed that do not overlap have
            no problem in common.
    """

    def __init__(self, source, start=0, stop=None, seed=0):
        self._source = source
        self._start = min(start, len(source))
        stop = len(source) if stop is None else min(stop, len(source))
        self._length = max(stop - self._start, 0)
        self._seed = seed

    def __len__(self):
        return self._length

    def read(self, indices):
        """Reads problems of the part; see `ProblemSource.read`."""
        # The second seed keeps this order apart from those of the epochs.
        return self._source.read(
            permute(indices + self._start, len(self._source), (self._seed, -1))
        )

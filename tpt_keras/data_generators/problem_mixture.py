import numpy as np

from tpt_keras.errors import UsageError


class ProblemMixture:
    """Several sources as one, each with a weight.

    A source's share of the mixture is its weight's. The mixture is just as
    long as it takes to hold every problem: problems of a source that is short
    for its weight occur several times, all others once. Sources of one length
    with the same weight are simply joined.

    Args:
        sources: Sources; empty ones are passed over.
        weights: Positive numbers, one a source. Defaults to the same for all.
    """

    def __init__(self, sources, weights=None):
        weights = np.ones(len(sources)) if weights is None else weights
        if min(weights, default=1) <= 0:
            raise UsageError("Weights of modules must be positive.")
        pairs = [(s, w) for s, w in zip(sources, weights) if len(s)]
        self._sources = [source for source, _ in pairs]
        lengths = np.array([len(source) for source in self._sources])
        shares = np.array([weight for _, weight in pairs], dtype="float64")
        per_weight = (lengths / shares).max(initial=0.0)
        stretched = np.rint(shares * per_weight).astype("int64")
        self._starts = np.concatenate([[0], np.cumsum(stretched)])

    def __len__(self):
        return int(self._starts[-1])

    def owners(self, indices):
        """Which source each problem of the mixture comes from.

        Args:
            indices: Integer array `(count,)`.

        Returns:
            Integer array `(count,)`, counting the sources that are not empty.
        """
        return np.searchsorted(self._starts, indices, "right") - 1

    def read(self, indices):
        """Reads problems of the mixture; see `ProblemSource.read`."""
        indices = np.asarray(indices)
        questions = np.empty(len(indices), dtype=object)
        answers = np.empty(len(indices), dtype=object)
        owners = self.owners(indices)
        for owner in np.unique(owners):
            rows = np.flatnonzero(owners == owner)
            source = self._sources[owner]
            places = (indices[rows] - self._starts[owner]) % len(source)
            questions[rows], answers[rows] = source.read(places)
        return questions, answers

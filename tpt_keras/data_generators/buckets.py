"""Bucketing: a few pairs of a source and a target length for all batches."""

import numpy as np

MAX_PAIRS = 6

# Greatest shares of padding of source and of target cells.
MAX_PADDING = (0.25, 0.40)

# Extra padding of batches: the examples that fill no batch of their bucket go
# to a larger one.
_MARGIN = 0.03

# Source lengths are multiples of it. Both lengths of the longest pair are
# rounded up further, to fit examples that were not sampled.
_SOURCE_STEP = 4
_STEPS_OF_LONGEST = (8, 4)

# Candidates for the worth of a target cell in source cells.
_TARGET_WEIGHTS = (1.0, 1.5, 2.0, 3.0, 4.0)


def choose_length_pairs(lengths):
    """Chooses as few buckets as keep the padding below `MAX_PADDING`.

    Where that is impossible, they are those that pad least. Few buckets mean
    few programs to compile, and batches of many kinds of problems.

    Args:
        lengths: Integer array `(examples, 2)`, the source and the target
            length of each.

    Returns:
        Array of at most `MAX_PAIRS` pairs, the smallest first. The last is as
        long as any example.
    """
    # Examples of nearly the same source length fit the same pairs.
    kinds = lengths + (-lengths % (_SOURCE_STEP, 1))
    kinds, counts = np.unique(kinds, axis=0, return_counts=True)
    longest = kinds.max(axis=0)
    longest += -longest % _STEPS_OF_LONGEST

    def badness(pairs):
        cells = counts @ pairs[fitting_pair(kinds, pairs)]
        padding = 1 - lengths.sum(axis=0) / cells
        excess = np.max((padding + _MARGIN) / MAX_PADDING)
        return max(1.0, excess), cells.sum()

    for others in range(MAX_PAIRS):
        choices = [
            _chosen_pairs(kinds, counts, longest, (1.0, weight), others)
            for weight in _TARGET_WEIGHTS
        ]
        pairs = min(choices, key=badness)
        if badness(pairs)[0] == 1.0:
            break
    return pairs


def fitting_pair(lengths, pairs):
    """Finds the smallest bucket that each example fits.

    Args:
        lengths: Integer array `(examples, 2)`.
        pairs: Array of pairs, the smallest first.

    Returns:
        Integer array `(examples,)` of places among the pairs: the last one if
        an example is longer than all.
    """
    fits = (lengths[:, None] <= pairs).all(axis=-1)
    fits[:, -1] = True
    return fits.argmax(axis=1)


def _chosen_pairs(kinds, counts, longest, weights, others):
    """The longest pair and `others` more, by greedy choice and exchange.

    The pairs that save most cells are added one by one, and then replaced one
    by one until no exchange saves more.
    """
    sources, targets = map(np.unique, kinds.T)
    candidates = np.stack(np.meshgrid(sources, targets), axis=-1)
    candidates = candidates.reshape(-1, 2)
    fits = (candidates[:, None] >= kinds).all(axis=-1)
    most = longest @ weights
    # An example of each kind, padded to each candidate or to the longest.
    cells = np.where(fits, (candidates @ weights)[:, None], most)

    def best(chosen):
        least = cells[chosen].min(axis=0, initial=most)
        return int((np.minimum(cells, least) @ counts).argmin())

    chosen, before = [], None
    while len(chosen) < others:
        chosen.append(best(chosen))
    while chosen != before:
        before = list(chosen)
        for place in range(others):
            chosen[place] = best(chosen[:place] + chosen[place + 1 :])
    pairs = np.unique([*candidates[chosen], longest], axis=0)
    return pairs[np.argsort(pairs.sum(axis=1), kind="stable")]

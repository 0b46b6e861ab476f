import numpy as np

MAX_PAIRS = 6

# Shares of padding, of source and of target cells, to stay below of.
MAX_PADDING = (0.25, 0.40)

# What batches may have more of it than problems have by themselves, for some
# of them are left over and go to a larger pair.
_MARGIN = 0.03

# Source lengths are multiples of it, and both of the longest pair, so that
# what was not looked at fits as well.
_SOURCE_STEP = 4
_STEPS_OF_LONGEST = (8, 4)

# How many source cells a target cell may be worth.
_TARGET_WEIGHTS = (1.0, 1.5, 2.0, 3.0, 4.0)


def choose_length_pairs(lengths):
    """As few pairs of lengths as pad problems by less than `MAX_PADDING`.

    Or where that cannot be, those that pad them least. Few, for a backend may
    compile a program for each, and for batches that are of many kinds.

    Args:
        lengths: Integer array `(problems, 2)`, the source and the target
            length of each.

    Returns:
        Array of `MAX_PAIRS` pairs at most, those of the fewest cells first.
        The last is as long as any problem.
    """
    # What has one source length fits the same pairs as what is a bit shorter.
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
    """The first pair, of the fewest cells, that each problem fits.

    Args:
        lengths: Integer array `(problems, 2)`.
        pairs: Array of pairs, those of the fewest cells first.

    Returns:
        Integer array `(problems,)` of places among the pairs, the last one
        where a problem is longer than all.
    """
    fits = (lengths[:, None] <= pairs).all(axis=-1)
    fits[:, -1] = True
    return fits.argmax(axis=1)


def _chosen_pairs(kinds, counts, longest, weights, others):
    """The longest pair and others, for so many problems of each kind.

    One after the other the pair that saves most cells, and then another in the
    place of each, until nothing gets better.
    """
    sources, targets = map(np.unique, kinds.T)
    candidates = np.stack(np.meshgrid(sources, targets), axis=-1)
    candidates = candidates.reshape(-1, 2)
    fits = (candidates[:, None] >= kinds).all(axis=-1)
    most = longest @ weights
    # Of a problem of each kind, padded to each candidate, or to the longest.
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

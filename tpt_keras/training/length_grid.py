import numpy as np

MAX_PAIRS = 6

# Shares of padding, of source and of target cells, to stay below of.
MAX_PADDING = (0.25, 0.40)

# Share of the cells that a pair more has to save.
MIN_SAVING = 0.01

# Source lengths are multiples of it, and both of the longest pair, so that
# what was not looked at fits as well.
_SOURCE_STEP = 4
_STEPS_OF_LONGEST = (8, 4)

# How many source cells a target cell may be worth.
_TARGET_WEIGHTS = (1.0, 1.5, 2.0, 3.0, 4.0)


class LengthGrid:
    """Few pairs of a source and a target length, to pad batches to.

    For a backend that compiles a program for every shape, which takes long.

    Args:
        pairs: List of pairs.
        limits: A pair that nothing should exceed. What fits no pair is padded
            to it, or where it is longer to a multiple.

    Example:

    >>> grid = LengthGrid([(48, 8), (48, 16)], limits=(162, 31))
    >>> [grid.pair(*lengths) for lengths in [(40, 8), (40, 9), (49, 3)]]
    [(48, 8), (48, 16), (162, 31)]
    >>> grid.pair(170, 3)
    (324, 31)
    """

    def __init__(self, pairs, limits):
        # Those of the fewest cells first.
        self.pairs = sorted(pairs, key=sum)
        self.limits = limits

    @classmethod
    def of_parts(cls, limits, parts=4):
        """A grid for batches of which nothing is known.

        Args:
            limits: See `LengthGrid`.
            parts: Number of source lengths.

        Returns:
            A `LengthGrid`.
        """
        source, target = limits
        pairs = [
            (-(-source * part // parts), target) for part in range(1, parts + 1)
        ]
        return cls(pairs, limits)

    @classmethod
    def chosen(cls, lengths, tokens, limits):
        """The grid that pads some batches least.

        Of those, where there are any, that leave less padding than
        `MAX_PADDING`.

        Args:
            lengths: Integer array `(batches, 2)`, the source and the target
                length of each.
            tokens: The tokens of each that are no padding, as means over its
                rows `(batches, 2)`.
            limits: See `LengthGrid`.

        Returns:
            A `LengthGrid` of `MAX_PAIRS` at most.
        """
        lengths = np.minimum(lengths, limits)
        steps = np.array(_STEPS_OF_LONGEST)
        longest = np.minimum(-(-lengths.max(axis=0) // steps) * steps, limits)
        grids = [
            cls(_chosen_pairs(lengths, longest, (1.0, weight)), limits)
            for weight in _TARGET_WEIGHTS
        ]
        tokens = np.sum(tokens, axis=0)

        def badness(grid):
            cells = np.sum([grid.pair(*pair) for pair in lengths], axis=0)
            excess = (1 - tokens / cells) / MAX_PADDING
            return max(1.0, *excess), cells.sum()

        return min(grids, key=badness)

    def pair(self, source_length, target_length):
        """The pair that a batch is to be padded to.

        Args:
            source_length: Integer.
            target_length: Integer.

        Returns:
            Pair of integers, neither smaller.
        """
        for source, target in self.pairs:
            if source_length <= source and target_length <= target:
                return source, target
        source, target = self.limits
        return (
            -(-source_length // source) * source,
            -(-target_length // target) * target,
        )


def _chosen_pairs(lengths, longest, weights):
    """Pairs for batches, the longest among them.

    One after the other the pair that saves most cells, if it saves enough, and
    then another in the place of each, until nothing gets better.
    """
    lengths, counts = np.unique(lengths, axis=0, return_counts=True)
    sources = -(-lengths[:, 0] // _SOURCE_STEP) * _SOURCE_STEP
    sources = np.unique(np.minimum(sources, longest[0]))
    targets = np.unique(lengths[:, 1])
    candidates = np.stack(np.meshgrid(sources, targets), axis=-1)
    candidates = candidates.reshape(-1, 2)
    fits = (candidates[:, None] >= lengths).all(axis=-1)
    most = longest @ weights
    # Of a row of each batch, padded to each candidate, or to the longest.
    cells = np.where(fits, (candidates @ weights)[:, None], most)

    def least(chosen):
        return cells[chosen].min(axis=0, initial=most)

    def best(others):
        return int((np.minimum(cells, least(others)) @ counts).argmin())

    chosen, before = [], None
    while len(chosen) < MAX_PAIRS - 1:
        more = [*chosen, best(chosen)]
        if least(more) @ counts > (1 - MIN_SAVING) * (least(chosen) @ counts):
            break
        chosen = more
    while chosen != before:
        before = list(chosen)
        for place in range(len(chosen)):
            chosen[place] = best(chosen[:place] + chosen[place + 1 :])
    pairs = [*candidates[chosen], longest]
    return {tuple(pair) for pair in np.array(pairs).tolist()}

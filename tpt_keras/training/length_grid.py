import numpy as np


class LengthGrid:
    """Few pairs of a source and a target length, to pad batches to.

    For a backend that compiles a program for every shape, which takes long.

    Args:
        pairs: List of pairs.
        limits: A pair that nothing should exceed, and none of the pairs will.
            What fits no pair is padded to it, or where it is longer to a
            multiple.

    Example:

    >>> grid = LengthGrid([(48, 8), (48, 16)], limits=(162, 31))
    >>> [grid.pair(*lengths) for lengths in [(40, 8), (40, 9), (49, 3)]]
    [(48, 8), (48, 16), (162, 31)]
    >>> grid.pair(170, 3)
    (324, 31)
    """

    def __init__(self, pairs, limits):
        pairs = np.minimum(pairs, limits).tolist()
        # Those of the fewest cells first.
        self.pairs = sorted(set(map(tuple, pairs)), key=sum)
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

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


class Buckets:
    """Pairs of a source and a target length that batches are padded to.

    Args:
        pairs: Pairs of lengths.
        limits: The longest pair that a model takes. What fits no other pair is
            padded to it, or to a multiple of it.
        pad_id: Token id of padding.

    Example:

    >>> buckets = Buckets([(48, 8), (48, 16)], limits=(162, 31), pad_id=0)
    >>> [buckets.pair(*lengths) for lengths in [(40, 8), (40, 9), (49, 3)]]
    [(48, 8), (48, 16), (162, 31)]
    >>> buckets.pair(170, 3)
    (324, 31)
    """

    def __init__(self, pairs, limits, pad_id):
        pairs = np.minimum(pairs, limits).tolist()
        # The smallest first.
        self.pairs = sorted(set(map(tuple, pairs)), key=sum)
        self.limits = limits
        self.pad_id = pad_id

    @classmethod
    def of_model(cls, model, batches=None, parts=4):
        """Chooses buckets for a model.

        Args:
            model: A `SequenceToSequence`.
            batches: The `ProblemBatches` that the model is trained with, which
                choose the lengths. Defaults to none: then there are a few
                source lengths.
            parts: Number of these source lengths.

        Returns:
            A `Buckets`.
        """
        # With the start and the end symbol; a target has one of them.
        source = model.config.max_question_length + 2
        target = model.config.max_answer_length + 1
        pairs = [
            (-(-source * part // parts), target) for part in range(1, parts + 1)
        ]
        if batches is not None:
            pairs = batches.length_pairs
        return cls(pairs, (source, target), model.tokenizer.pad_id)

    def pair(self, source_length, target_length):
        """Returns the smallest pair that a batch fits.

        Args:
            source_length: Integer.
            target_length: Integer.

        Returns:
            Pair of integers.
        """
        for source, target in self.pairs:
            if source_length <= source and target_length <= target:
                return source, target
        source, target = self.limits
        return (
            -(-source_length // source) * source,
            -(-target_length // target) * target,
        )

    def pad(self, batch, rows):
        """Pads a batch to its bucket.

        Args:
            batch: A batch of `ProblemBatches`.
            rows: Number of rows to pad it to.

        Returns:
            A batch.
        """
        inputs, targets = batch
        source_length, target_length = self.pair(
            inputs["encoder_token_ids"].shape[1], targets.shape[1]
        )

        def padded(ids, length):
            added = (0, rows - ids.shape[0]), (0, length - ids.shape[1])
            return np.pad(ids, added, constant_values=self.pad_id)

        return {
            "encoder_token_ids": padded(
                inputs["encoder_token_ids"], source_length
            ),
            "decoder_token_ids": padded(
                inputs["decoder_token_ids"], target_length
            ),
        }, padded(targets, target_length)

    def known_pairs(self, batches=None):
        """Returns the pairs that are expected.

        Args:
            batches: The `ProblemBatches` to expect. Defaults to those that the
                lengths were chosen for.

        Returns:
            List of pairs.
        """
        if batches is None:
            return self.pairs
        # Whatever is no longer than the longest fits no larger bucket.
        longest = map(min, batches.length_pairs[-1], self.limits)
        last = self.pair(*longest)
        return [*(pair for pair in self.pairs if sum(pair) < sum(last)), last]

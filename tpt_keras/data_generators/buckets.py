"""Bucketing: batches of similar lengths, padded to a few pairs of lengths.

A pair of a source and a target length is a bucket. Few buckets mean few
programs to compile.
"""

from typing import Any

import numpy as np

# Largest noise on source lengths when batches are sorted, as a share.
LENGTH_NOISE = 0.2

MAX_PAIRS = 6
# The largest shares of padding in sources and targets. More buckets are added
# until the shares are below, or there are `MAX_PAIRS`.
MAX_PADDING = (0.22, 0.37)
# A target token costs as much as so many source tokens. Measured, it keeps the
# padding of all modules low.
_TOKEN_COSTS = (1.0, 3.0)
# Lengths of sources and targets are multiples of these numbers, or of larger
# ones where there would be more than `_MAX_LENGTHS`. Those of the longest pair
# are multiples of the last numbers, because other examples have to fit it.
_STEPS = (4, 1)
_MAX_LENGTHS = 48
_STEPS_OF_LONGEST = (8, 4)


def similar_length_batches(lengths, pairs, batch_size, rng):
    """Cuts examples into batches of similar lengths, most of which fit a pair.

    Every bucket takes the examples that fit no smaller one. Those that fill no
    batch go to the next bucket that they fit. Returns arrays of indices, of
    which one may be smaller.

    Lengths in a batch are similar, not equal: a problem's length tells its kind
    (the digits of a place value question, for example), and a batch of a single
    kind gives a poor gradient.
    """
    noise = rng.uniform(1.0, 1.0 + LENGTH_NOISE, len(lengths))
    order = np.argsort(lengths[:, 0] * noise, kind="stable")
    waiting = fitting_pair(lengths, pairs)
    batches = []
    for index in range(len(pairs)):
        rows = order[waiting[order] == index]
        if index < len(pairs) - 1:
            rows, left = np.split(rows, [len(rows) // batch_size * batch_size])
            larger = fitting_pair(lengths[left], pairs[index + 1 :])
            waiting[left] = index + 1 + larger
        batches += _batches_of_bucket(rows, lengths[:, 1], batch_size)
    return batches


def _batches_of_bucket(rows, target_lengths, batch_size):
    num_batches = -(-len(rows) // batch_size)
    # A wide chunk sorts targets well, a narrow one keeps sources together.
    # Measured, ten batches keep the padding of both low.
    chunk = batch_size * (10 if num_batches > 10 else 1)
    batches = []
    for start in range(0, len(rows), chunk):
        part = rows[start : start + chunk]
        part = part[np.argsort(target_lengths[part], kind="stable")]
        batches += np.split(part, range(batch_size, len(part), batch_size))
    return batches


def choose_length_pairs(
    lengths: np.ndarray,
    max_pairs: int = MAX_PAIRS,
    max_padding: tuple[float, float] = MAX_PADDING,
) -> np.ndarray:
    """Chooses as few buckets as keep the padding below `max_padding`.

    There are at most `max_pairs`, the smallest first. The last is as long as
    any of the examples, whose lengths are `(examples, 2)`.
    """
    # Examples of nearly the same lengths fit the same pairs.
    steps = np.maximum(_STEPS, -(-lengths.max(axis=0) // _MAX_LENGTHS))
    steps += -steps % _STEPS
    rounded = lengths + (-lengths % steps)
    rounded, counts = np.unique(rounded, axis=0, return_counts=True)
    longest = rounded.max(axis=0)
    longest += -longest % _STEPS_OF_LONGEST
    for others in range(max_pairs):
        pairs = _chosen_pairs(rounded, counts, longest, others)
        tokens = counts @ pairs[fitting_pair(rounded, pairs)]
        if np.all(1 - lengths.sum(axis=0) / tokens <= max_padding):
            break
    return pairs


def fitting_pair(lengths: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Indices of the smallest buckets that examples fit, or of the last one."""
    fits = np.all(lengths[:, None] <= pairs, axis=-1)
    fits[:, -1] = True
    return fits.argmax(axis=1)


def _chosen_pairs(lengths, counts, longest, others):
    """The longest pair and `others` more.

    The pairs that save most padding are added one by one, and then replaced
    one by one until no exchange saves more.
    """
    sources, targets = map(np.unique, lengths.T)
    candidates = np.stack(np.meshgrid(sources, targets), axis=-1)
    candidates = candidates.reshape(-1, 2)
    fits = (candidates[:, None] >= lengths).all(axis=-1)
    most = longest @ _TOKEN_COSTS
    # Of examples of each length, padded to each candidate or to the longest.
    costs = np.where(fits, (candidates @ _TOKEN_COSTS)[:, None], most)

    def best(chosen):
        least = costs[chosen].min(axis=0, initial=most)
        return int((np.minimum(costs, least) @ counts).argmin())

    chosen, before = [], None
    while len(chosen) < others:
        chosen.append(best(chosen))
    while chosen != before:
        before = list(chosen)
        for index in range(others):
            chosen[index] = best(chosen[:index] + chosen[index + 1 :])
    pairs = np.unique([*candidates[chosen], longest], axis=0)
    return pairs[np.argsort(pairs.sum(axis=1), kind="stable")]


class Buckets:
    """Pairs of a source and a target length that batches are padded to.

    Args:
        model: A `SequenceToSequence`.
        pairs: Lengths `(pairs, 2)`. Defaults to a few source lengths.
    """

    def __init__(self, model: Any, pairs: np.ndarray | None = None) -> None:
        # With the start and the end symbol; a target has one of them.
        source = model.config.max_question_length + 2
        target = model.config.max_answer_length + 1
        self._limits = (source, target)
        self._pad_id = model.tokenizer.pad_id
        if pairs is None:
            few = [(-(-source * part // 4), target) for part in range(1, 5)]
            pairs = np.array(few)
        pairs = np.minimum(pairs, self._limits).tolist()
        # The smallest first.
        self.pairs = sorted(set(map(tuple, pairs)), key=sum)

    def pair(self, source_length: int, target_length: int) -> tuple[int, int]:
        """The smallest pair that a batch fits, or a multiple of the longest."""
        for source, target in self.pairs:
            if source_length <= source and target_length <= target:
                return source, target
        source, target = self._limits
        return (
            -(-source_length // source) * source,
            -(-target_length // target) * target,
        )

    def pad(self, batch, rows):
        """Pads a batch of `ProblemBatches` to its pair and a number of rows."""
        inputs, targets = batch
        source, target = self.pair(
            inputs["encoder_token_ids"].shape[1], targets.shape[1]
        )

        def padded(ids, length):
            added = (0, rows - ids.shape[0]), (0, length - ids.shape[1])
            return np.pad(ids, added, constant_values=self._pad_id)

        return {
            "encoder_token_ids": padded(inputs["encoder_token_ids"], source),
            "decoder_token_ids": padded(inputs["decoder_token_ids"], target),
        }, padded(targets, target)

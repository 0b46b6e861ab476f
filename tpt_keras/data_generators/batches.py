"""Batches of similar lengths, in an order that can be entered at any step.

Bucketing: every batch is padded to one of a few pairs of a source and a target
length, so that few programs are compiled.
"""

import collections
import concurrent.futures
import contextlib
import functools
import itertools

import numpy as np

from tpt_keras.data_generators.examples import Sequences
from tpt_keras.data_generators.examples import permute
from tpt_keras.errors import UsageError

# Batches that are sorted together. A larger window pads less, takes more
# memory and delays the first batch.
WINDOW_BATCHES = 128

# Questions whose words are found at once, which bounds the memory.
_CHUNK = 8192

# Examples whose lengths choose the buckets.
SAMPLED_EXAMPLES = 2**16

# Largest noise on source lengths when batches are sorted, as a share.
LENGTH_NOISE = 0.2

MAX_PAIRS = 6
# As many buckets are chosen as it takes to have no larger shares of padding of
# source and of target cells.
MAX_PADDING = (0.22, 0.37)
# A target cell costs as much as so many source cells. Measured, it keeps the
# padding of all modules low.
_CELL_WEIGHTS = (1.0, 3.0)
# Lengths of sources are multiples of it. Both lengths of the longest pair are
# rounded up further, to fit examples that were not sampled.
_SOURCE_STEP = 4
_STEPS_OF_LONGEST = (8, 4)

_END = object()


class NumberedBatches:
    """Training batches that can start at any step.

    A subclass has a `batch_size`, `steps_per_epoch`, a length (the examples of
    an epoch), a `signature` (the structure of a batch as nested
    `tf.TensorSpec`s) and a method `_parts(shards, num_shards)` that returns a
    function from a number to a part of a batch.

    Attributes:
        seconds_waited: Seconds that reading has waited for data in all, `None`
            if the data is there already.
    """

    seconds_waited = None
    _error = None

    def iterate(
        self, start_step=0, num_epochs=None, shards=range(1), num_shards=1
    ):
        """Generates batches.

        Args:
            start_step: Number of the first batch. A late start takes no longer
                than 0.
            num_epochs: Number of epochs. Defaults to no end.
            shards: Parts of every batch to yield, one after another: the
                indices of this worker's replicas.
            num_shards: Number of parts that every batch is cut into: the
                number of all replicas.
        """
        start, stop = self._numbers(start_step, num_epochs, shards)
        numbers = itertools.count(start) if stop is None else range(start, stop)
        yield from map(self._parts(shards, num_shards), numbers)

    def dataset(
        self, start_step=0, num_epochs=None, shards=range(1), num_shards=1
    ):
        """Makes a `tf.data.Dataset` of what `iterate` generates."""
        from tpt_keras.data_generators import tensorflow_dataset

        part = self._parts(shards, num_shards)

        def remember_error(number):
            try:
                return part(number)
            except Exception as error:
                self._error = error
                raise

        start, stop = self._numbers(start_step, num_epochs, shards)
        return tensorflow_dataset.function_dataset(
            remember_error, start, stop, self.signature
        )

    @contextlib.contextmanager
    def own_errors(self):
        """Raises the original error where tf.data wraps it in one of its own.

        A `UsageError` that reading a batch raised is then a `UsageError` again.
        """
        self._error = None
        try:
            yield
        except Exception as error:
            if self._error is None or isinstance(error, UsageError):
                raise
            raise self._error from None

    def _numbers(self, start_step, num_epochs, shards):
        """First number and end, or None, of the parts."""
        stop = None
        if num_epochs is not None:
            stop = num_epochs * self.steps_per_epoch * len(shards)
        return start_step * len(shards), stop


class ProblemBatches(NumberedBatches):
    """Token batches of similar lengths, sampled from all examples.

    The order of an epoch is a pseudorandom permutation of all examples, which
    can be entered at any step. Windows of `WINDOW_BATCHES` batches are read
    along that order. The examples of a window are sorted into buckets and by
    length, cut into batches, and the batches are shuffled. Every epoch visits
    every example once. One batch may be smaller.

    A batch is a pair of inputs, a dict of `encoder_token_ids` `(batch,
    source_length)` and `decoder_token_ids` `(batch, target_length)`, and
    targets `(batch, target_length)`: int32 arrays.

    Args:
        source: An `Examples`.
        tokenizer: The model's `CharacterTokenizer`. Its vocabulary may be in
            another order than that of the examples, and may have words.
        batch_size: Number of examples in a batch.
        seed: Seed of the order.
        limits: Dict of `max_question_length` and `max_answer_length`, in
            characters. A longer example raises a `UsageError` when it is read.

    Raises:
        UsageError: If there are no examples.
    """

    def __init__(self, source, tokenizer, batch_size, seed=0, limits=None):
        if not len(source):
            raise UsageError("There are no problems: the dataset is empty.")
        self.source = source
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.seed = seed
        self.limits = limits or {}
        self._token_ids = np.array(
            [tokenizer.token_ids.get(s, -1) for s in source.vocabulary], "int32"
        )

    def __len__(self):
        """Number of examples of an epoch."""
        return len(self.source)

    @property
    def steps_per_epoch(self):
        return -(-len(self) // self.batch_size)

    @property
    def signature(self):
        import tensorflow as tf

        tokens = tf.TensorSpec((None, None), tf.int32)
        inputs = {"encoder_token_ids": tokens, "decoder_token_ids": tokens}
        return inputs, tokens

    def _parts(self, shards, num_shards):
        # Two, in case one dataset has two iterators at a time.
        read_window = functools.lru_cache(maxsize=2)(self._window)

        def part(number):
            step, place = divmod(number, len(shards))
            epoch, step = divmod(step, self.steps_per_epoch)
            row = step % WINDOW_BATCHES
            batches, encode = read_window(epoch, step - row)
            return encode(batches[row][shards[place] :: num_shards])

        return part

    @functools.cached_property
    def length_pairs(self):
        """The buckets, chosen for the first examples."""
        count = len(self.source)
        positions = np.arange(min(SAMPLED_EXAMPLES, count))
        indices = permute(positions, count, (self.seed, 0))
        lengths = self.source.lengths(indices)
        self._check(self.source, indices, lengths)
        if self.tokenizer.words:
            questions, _ = self.source.read(indices)
            lengths[:, 0] = self._questions(questions).lengths
        return choose_length_pairs(_framed(lengths))

    def _check(self, examples, indices, lengths):
        for column, (field, limit) in enumerate(self.limits.items()):
            longest = lengths[:, column].argmax()
            if lengths[longest, column] > limit:
                ((question, _),) = examples.texts(indices[[longest]])
                raise UsageError(
                    f"The training example {question[:40]!r} has "
                    f"{lengths[longest, column]} characters, and the model's "
                    f"`{field}` is {limit}. Raise it, or leave the module out.",
                    field=field,
                )

    def _examples_of_window(self, epoch, first):
        """An `Examples` and the indices of a window's examples."""
        positions = np.arange(
            first * self.batch_size,
            min((first + WINDOW_BATCHES) * self.batch_size, len(self)),
        )
        return self.source, permute(positions, len(self), (self.seed, epoch))

    def _window(self, epoch, first):
        """The rows of a window's batches, and a function that encodes rows."""
        examples, indices = self._examples_of_window(epoch, first)
        sources, targets = examples.read(indices)
        lengths = np.stack([sources.lengths, targets.lengths], axis=-1)
        self._check(examples, indices, lengths)
        sources, targets = self._questions(sources), self._translated(targets)
        lengths[:, 0] = sources.lengths
        rng = np.random.default_rng((self.seed, epoch, first))
        batches = similar_length_batches(
            _framed(lengths), self.length_pairs, self.batch_size, rng
        )
        rng.shuffle(batches)

        def encode(rows):
            source, target = (
                self.tokenizer.frame(of_rows.tokens, of_rows.lengths)
                for of_rows in (sources[rows], targets[rows])
            )
            return (
                {
                    "encoder_token_ids": source,
                    "decoder_token_ids": target[:, :-1],
                },
                target[:, 1:],
            )

        return batches, encode

    def _questions(self, sequences):
        """Questions in the model's token ids, with its words."""
        if not self.tokenizer.words:
            return self._translated(sequences)
        parts = []
        for first in range(0, len(sequences.lengths), _CHUNK):
            part = self._translated(sequences[first : first + _CHUNK])
            parts.append(self.tokenizer.join_words(part.tokens, part.lengths))
        return Sequences(*map(np.concatenate, zip(*parts)))

    def _translated(self, sequences):
        """Characters in the model's token ids."""
        token_ids = self._token_ids[sequences.tokens]
        if token_ids.size and token_ids.min() < 0:
            unknown = sequences.tokens[token_ids.argmin()]
            raise UsageError(
                f"The character {self.source.vocabulary[unknown]!r} of a "
                "problem is not in the model's vocabulary. Leave its module "
                "out, or take a model whose `vocabulary` has it."
            )
        return Sequences(token_ids, sequences.lengths)


def _framed(lengths):
    """Lengths with start and end symbols, of which a target lacks one."""
    return lengths + np.array([2, 1])


def similar_length_batches(lengths, pairs, batch_size, rng):
    """Cuts examples into batches of similar lengths, most of which fit a pair.

    Every bucket takes the examples that fit no smaller one. Those that fill no
    batch go to the next bucket that they fit.

    Lengths in a batch are similar, not equal, because lengths identify the
    kind of a problem (the digits of a place value question, for example), and
    a batch of a single kind gives a poor gradient. Returns arrays of indices,
    of which one may be smaller.
    """
    noise = rng.uniform(1.0, 1.0 + LENGTH_NOISE, len(lengths))
    order = np.argsort(lengths[:, 0] * noise, kind="stable")
    waiting = fitting_pair(lengths, pairs)
    batches = []
    for place in range(len(pairs)):
        rows = order[waiting[order] == place]
        if place < len(pairs) - 1:
            left = rows[len(rows) - len(rows) % batch_size :]
            waiting[left] = (
                place + 1 + fitting_pair(lengths[left], pairs[place + 1 :])
            )
            rows = rows[: len(rows) - len(left)]
        batches += _batches_of_bucket(rows, lengths[:, 1], batch_size)
    return batches


def _batches_of_bucket(rows, target_lengths, batch_size):
    """Cuts rows in the order of their sources into batches."""
    num_batches = -(-len(rows) // batch_size)
    # A wide strip sorts targets well, a narrow one keeps sources together.
    # Measured, ten batches keep the padding of both low.
    strip = batch_size * (10 if num_batches > 10 else 1)
    batches = []
    for start in range(0, len(rows), strip):
        part = rows[start : start + strip]
        part = part[np.argsort(target_lengths[part], kind="stable")]
        batches += [
            part[first : first + batch_size]
            for first in range(0, len(part), batch_size)
        ]
    return batches


def choose_length_pairs(lengths):
    """Chooses as few buckets as keep the padding below `MAX_PADDING`.

    There are at most `MAX_PAIRS`, the smallest first. The last is as long as
    any of the examples, whose lengths are `(examples, 2)`.
    """
    # Examples of nearly the same source length fit the same pairs.
    kinds = lengths + (-lengths % (_SOURCE_STEP, 1))
    kinds, counts = np.unique(kinds, axis=0, return_counts=True)
    longest = kinds.max(axis=0)
    longest += -longest % _STEPS_OF_LONGEST
    for others in range(MAX_PAIRS):
        pairs = _chosen_pairs(kinds, counts, longest, others)
        cells = counts @ pairs[fitting_pair(kinds, pairs)]
        if np.all(1 - lengths.sum(axis=0) / cells <= MAX_PADDING):
            break
    return pairs


def fitting_pair(lengths, pairs):
    """Places of the smallest buckets that examples fit, or of the last one."""
    fits = (lengths[:, None] <= pairs).all(axis=-1)
    fits[:, -1] = True
    return fits.argmax(axis=1)


def _chosen_pairs(kinds, counts, longest, others):
    """The longest pair and `others` more, by greedy choice and exchange.

    The pairs that save most cells are added one by one, and then replaced one
    by one until no exchange saves more.
    """
    sources, targets = map(np.unique, kinds.T)
    candidates = np.stack(np.meshgrid(sources, targets), axis=-1)
    candidates = candidates.reshape(-1, 2)
    fits = (candidates[:, None] >= kinds).all(axis=-1)
    most = longest @ _CELL_WEIGHTS
    # An example of each kind, padded to each candidate or to the longest.
    cells = np.where(fits, (candidates @ _CELL_WEIGHTS)[:, None], most)

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
        model: A `SequenceToSequence`.
        batches: The `ProblemBatches` that the model is trained with, whose
            `length_pairs` are taken. Defaults to none: then there are a few
            source lengths.
    """

    def __init__(self, model, batches=None):
        # With the start and the end symbol; a target has one of them.
        source = model.config.max_question_length + 2
        target = model.config.max_answer_length + 1
        self._limits = (source, target)
        self._pad_id = model.tokenizer.pad_id
        if batches is None:
            pairs = [(-(-source * part // 4), target) for part in range(1, 5)]
        else:
            pairs = np.minimum(batches.length_pairs, self._limits).tolist()
        # The smallest first.
        self.pairs = sorted(set(map(tuple, pairs)), key=sum)

    def pair(self, source_length, target_length):
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


def prefetch(items, size):
    """Generates the items of an iterator, which a thread computes ahead.

    Their order is kept, and an error is raised in its place. The thread ends
    when the generator is closed.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        waiting = collections.deque(
            thread.submit(next, items, _END) for _ in range(size)
        )
        try:
            while (item := waiting.popleft().result()) is not _END:
                waiting.append(thread.submit(next, items, _END))
                yield item
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

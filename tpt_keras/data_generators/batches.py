"""Batches of similar lengths, in an order that can be entered at any step."""

import collections
import concurrent.futures
import contextlib
import functools
import itertools

import numpy as np

from tpt_keras.data_generators.buckets import choose_length_pairs
from tpt_keras.data_generators.buckets import fitting_pair
from tpt_keras.data_generators.examples import permute
from tpt_keras.errors import UsageError

# Batches that are sorted together. A larger window pads less, takes more
# memory and delays the first batch.
WINDOW_BATCHES = 128

# Examples whose lengths choose the buckets.
SAMPLED_EXAMPLES = 2**16

# Largest noise on source lengths when batches are sorted, as a share.
LENGTH_NOISE = 0.2

_END = object()


class NumberedBatches:
    """Training batches that can start at any step.

    A training resumes without reading the batches before. A subclass has
    `batch_size`, `steps_per_epoch`, a length (the examples of an epoch), a
    `signature` and `_parts`.
    """

    _error = None

    @property
    def signature(self):
        """The structure of a batch as nested `tf.TensorSpec`s."""
        raise NotImplementedError

    def _parts(self, shards, num_shards):
        """Returns a function from a number to a part of a batch."""
        raise NotImplementedError

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

        Yields:
            Batches, or this worker's parts of them.
        """
        start, stop = self._numbers(start_step, num_epochs, shards)
        numbers = itertools.count(start) if stop is None else range(start, stop)
        yield from map(self._parts(shards, num_shards), numbers)

    def dataset(
        self, start_step=0, num_epochs=None, shards=range(1), num_shards=1
    ):
        """Makes a `tf.data.Dataset` of the batches.

        Args:
            start_step: See `iterate`.
            num_epochs: See `iterate`.
            shards: See `iterate`.
            num_shards: See `iterate`.

        Returns:
            A dataset of the elements that `iterate` generates.
        """
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

    The order of an epoch is a pseudorandom permutation of all examples. It is
    computed by a formula, takes no memory, and can be entered at any step.
    Windows of `WINDOW_BATCHES` batches are read along that order. The examples
    of a window are sorted into buckets and by length, cut into batches, and
    the batches are shuffled. Every epoch visits every example once. Its last
    batch is smaller where the numbers do not divide.

    A batch is a pair of inputs, a dict of `encoder_token_ids` `(batch,
    source_length)` and `decoder_token_ids` `(batch, target_length)`, and
    targets `(batch, target_length)`: int32 arrays.

    Args:
        source: An `Examples`.
        tokenizer: The model's `CharacterTokenizer`. Its vocabulary may be in
            another order than that of the examples.
        batch_size: Number of examples in a batch.
        seed: Seed of the order.

    Raises:
        UsageError: If there are no examples.
    """

    def __init__(self, source, tokenizer, batch_size, seed=0):
        if not len(source):
            raise UsageError("There are no problems: the dataset is empty.")
        self.source = source
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.seed = seed
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
            epoch, first, row = self._place(step)
            _, batches, encode = read_window(epoch, first)
            return encode(batches[row][shards[place] :: num_shards])

        return part

    def _place(self, step):
        """The epoch, the window's first batch and the place in the window."""
        epoch, step = divmod(step, self.steps_per_epoch)
        row = step % WINDOW_BATCHES
        return epoch, step - row, row

    def indices(self, step):
        """Places of a batch's examples in the source.

        Args:
            step: Number of the batch.

        Returns:
            Integer array `(batch,)`.
        """
        epoch, first, row = self._place(step)
        indices, batches, _ = self._window(epoch, first)
        return indices[batches[row]]

    @functools.cached_property
    def length_pairs(self):
        """Buckets: a few pairs of a source and a target length.

        They are chosen for the first examples; see `choose_length_pairs`.
        """
        positions = np.arange(min(SAMPLED_EXAMPLES, len(self)))
        indices = permute(positions, len(self), (self.seed, 0))
        return choose_length_pairs(_framed(self.source.lengths(indices)))

    def _window(self, epoch, first):
        """Reads the window that starts with batch `first`.

        Returns:
            The indices of its examples, the rows of its batches, and the
            function that encodes rows.
        """
        positions = np.arange(
            first * self.batch_size,
            min((first + WINDOW_BATCHES) * self.batch_size, len(self)),
        )
        indices = permute(positions, len(self), (self.seed, epoch))
        sources, targets = self.source.read(indices)
        lengths = np.stack([sources.lengths, targets.lengths], axis=-1)
        rng = np.random.default_rng((self.seed, epoch, first))
        batches = similar_length_batches(
            _framed(lengths), self.length_pairs, self.batch_size, rng
        )
        rng.shuffle(batches)

        def encode(rows):
            target = self._encode(targets[rows])
            return (
                {
                    "encoder_token_ids": self._encode(sources[rows]),
                    "decoder_token_ids": target[:, :-1],
                },
                target[:, 1:],
            )

        return indices, batches, encode

    def _encode(self, sequences):
        """The model's token ids of sequences, framed and padded."""
        token_ids = self._token_ids[sequences.tokens]
        if token_ids.size and token_ids.min() < 0:
            unknown = sequences.tokens[token_ids.argmin()]
            raise UsageError(
                f"The character {self.source.vocabulary[unknown]!r} of a "
                "problem is not in the model's vocabulary. Leave its module "
                "out, or take a model whose `vocabulary` has it."
            )
        return self.tokenizer.frame(token_ids, sequences.lengths)


def _framed(lengths):
    """Lengths with start and end symbols, of which a target lacks one."""
    return lengths + np.array([2, 1])


def similar_length_batches(lengths, pairs, batch_size, rng):
    """Cuts examples into batches of similar lengths, most of which fit a pair.

    Every bucket takes the examples that fit no smaller one. Those that fill no
    batch go to the next bucket that they fit.

    Lengths in a batch are similar, not equal, because lengths identify the
    kind of a problem (the digits of a place value question, for example), and
    a batch of a single kind gives a poor gradient.

    Args:
        lengths: Integer array `(examples, 2)` of sources and targets.
        pairs: See `choose_length_pairs`.
        batch_size: Number of examples in a batch.
        rng: NumPy generator of the noise.

    Returns:
        List of arrays of indices, of which one may be smaller.
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


def prefetch(items, size):
    """Generates the items of an iterator, which a thread computes ahead.

    Their order is kept, and an error is raised in its place. The thread ends
    when the generator is closed.

    Args:
        items: An iterator.
        size: Largest number of items to hold.

    Yields:
        The items.

    Example:

    >>> list(prefetch(iter("abc"), size=2))
    ['a', 'b', 'c']
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

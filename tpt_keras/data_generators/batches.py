"""Batches of similar lengths, in an order that can be entered at any step."""

import collections
import concurrent.futures
import contextlib
import functools
import itertools
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpt_keras.data_generators.buckets import choose_length_pairs
from tpt_keras.data_generators.buckets import similar_length_batches
from tpt_keras.data_generators.examples import Examples
from tpt_keras.data_generators.examples import Sequences
from tpt_keras.data_generators.examples import permute
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

# Batches that are sorted together. A larger window pads less, takes more
# memory and delays the first batch.
WINDOW_BATCHES = 128

# Questions whose words are found at once, which bounds the memory.
_CHUNK = 8192

# Examples whose lengths choose the buckets.
SAMPLED_EXAMPLES = 2**16

# The start and the end symbol, of which a target lacks one.
_FRAME = np.array([2, 1])

_END = object()


class NumberedBatches:
    """Training batches that can start at any step.

    A subclass has a `batch_size` and a length (the examples of an epoch), and
    defines `steps_per_epoch`, `signature` and `_parts`.

    Attributes:
        seconds_waited: Seconds that reading has waited for data in all, `None`
            if the data is there already.
    """

    seconds_waited: float | None = None
    batch_size: int
    _error: Exception | None = None

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def steps_per_epoch(self) -> int | None:
        """Number of batches in an epoch, `None` for a stream without end."""
        raise NotImplementedError

    @property
    def signature(self) -> Any:
        """Structure of a batch, as nested `tf.TensorSpec`s."""
        raise NotImplementedError

    def _parts(self, shards, num_shards):
        """Returns a function from a number to a part of a batch."""
        raise NotImplementedError

    def iterate(
        self,
        start_step: int = 0,
        num_epochs: int | None = None,
        shards: Sequence[int] = range(1),
        num_shards: int = 1,
    ) -> Iterator[Any]:
        """Generates batches.

        Args:
            start_step: Number of the first batch. A late start takes no longer
                than 0.
            num_epochs: Number of epochs. Defaults to no end.
            shards: Parts of every batch to yield: this worker's replicas.
            num_shards: Parts that every batch is cut into: all replicas.
        """
        start, stop = self._numbers(start_step, num_epochs, shards)
        numbers = itertools.count(start) if stop is None else range(start, stop)
        yield from map(self._parts(shards, num_shards), numbers)

    def dataset(
        self,
        start_step: int = 0,
        num_epochs: int | None = None,
        shards: Sequence[int] = range(1),
        num_shards: int = 1,
    ) -> Any:
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
    def opened(self) -> Iterator[None]:
        """The scope to read batches in; it unwraps the errors of tf.data."""
        self._error = None
        try:
            yield
        except Exception as error:
            if self._error is None or isinstance(error, UsageError):
                raise
            raise self._error from None

    def _numbers(self, start_step, num_epochs, shards):
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

    A batch is a pair of int32 arrays: inputs, a dict of `encoder_token_ids`
    `(batch, source_length)` and `decoder_token_ids` `(batch, target_length)`,
    and targets `(batch, target_length)`.

    Args:
        source: An `Examples`.
        tokenizer: The model's `CharacterTokenizer`. Its vocabulary may be in
            another order than that of the examples, and may have words of
            characters.
        batch_size: Number of examples in a batch.
        seed: Seed of the order.
        limits: Dict of `max_question_length` and `max_answer_length`. A
            longer example raises a `UsageError` when it is read.

    Raises:
        UsageError: If there are no examples.
    """

    def __init__(
        self,
        source: Examples,
        tokenizer: CharacterTokenizer,
        batch_size: int,
        seed: int = 0,
        limits: dict[str, int] | None = None,
    ) -> None:
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
        return len(self.source)

    @property
    def steps_per_epoch(self) -> int | None:
        return -(-len(self) // self.batch_size)

    @property
    def signature(self) -> Any:
        import tensorflow as tf

        tokens = tf.TensorSpec((None, None), tf.int32)
        inputs = {"encoder_token_ids": tokens, "decoder_token_ids": tokens}
        return inputs, tokens

    def _parts(self, shards, num_shards):
        # Two, in case one dataset has two iterators at a time.
        read_window = functools.lru_cache(maxsize=2)(self._window)

        def part(number):
            step, index = divmod(number, len(shards))
            epoch = 0
            if self.steps_per_epoch:
                epoch, step = divmod(step, self.steps_per_epoch)
            row = step % WINDOW_BATCHES
            batches, encode = read_window(epoch, step - row)
            return encode(batches[row][shards[index] :: num_shards])

        return part

    @functools.cached_property
    def length_pairs(self) -> np.ndarray:
        """The buckets, chosen for the first examples."""
        count = len(self.source)
        positions = np.arange(min(SAMPLED_EXAMPLES, count))
        indices = permute(positions, count, (self.seed, 0))
        lengths = self.source.lengths(indices)
        self._check(self.source, indices, lengths)
        if self.tokenizer.words:
            questions, _ = self.source.read(indices)
            lengths[:, 0] = self._questions(questions).lengths
        return choose_length_pairs(lengths + _FRAME)

    def _check(self, examples, indices, lengths):
        for column, (field, limit) in enumerate(self.limits.items()):
            longest = lengths[:, column].argmax()
            if lengths[longest, column] > limit:
                ((question, _),) = examples.texts(indices[[longest]])
                raise UsageError(
                    f"The training example {question[:40]!r} has "
                    f"{lengths[longest, column]} {self.tokenizer.unit}, and "
                    f"the model's `{field}` is {limit}. Raise it by `hparams` "
                    f"({field}=...), or leave such examples out.",
                    field=field,
                )

    def _examples_of_window(self, epoch, first):
        """Returns an `Examples` and the indices of a window's examples."""
        positions = np.arange(
            first * self.batch_size,
            min((first + WINDOW_BATCHES) * self.batch_size, len(self)),
        )
        return self.source, permute(positions, len(self), (self.seed, epoch))

    def _window(self, epoch, first):
        """Returns the rows of each batch, and a function that encodes rows."""
        examples, indices = self._examples_of_window(epoch, first)
        sources, targets = examples.read(indices)
        lengths = np.stack([sources.lengths, targets.lengths], axis=-1)
        self._check(examples, indices, lengths)
        sources, targets = self._questions(sources), self._answers(targets)
        lengths[:, 0] = sources.lengths
        rng = np.random.default_rng((self.seed, epoch, first))
        batches = similar_length_batches(
            lengths + _FRAME, self.length_pairs, self.batch_size, rng
        )
        rng.shuffle(batches)

        def encode(rows):
            source, target = (
                self.tokenizer.frame(part.tokens, part.lengths)
                for part in (sources[rows], targets[rows])
            )
            inputs = {
                "encoder_token_ids": source,
                "decoder_token_ids": target[:, :-1],
            }
            return inputs, target[:, 1:]

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

    def _answers(self, sequences):
        """Answers in the model's token ids and order of digits."""
        answers = self._translated(sequences)
        return Sequences(
            self.tokenizer.order_digits(answers.tokens, answers.lengths),
            answers.lengths,
        )

    def _translated(self, sequences):
        """Sequences in the model's token ids."""
        token_ids = self._token_ids[sequences.tokens]
        if token_ids.size and token_ids.min() < 0:
            unknown = sequences.tokens[token_ids.argmin()]
            raise UsageError(
                f"The symbol {self.source.vocabulary[unknown]!r} of a "
                "problem is not in the model's vocabulary. Leave such problems "
                "out, or take a model whose `vocabulary` has it."
            )
        return Sequences(token_ids, sequences.lengths)


def prefetch(items: Iterator[Any], size: int) -> Iterator[Any]:
    """Generates the items of an iterator, which a thread computes ahead.

    Their order is kept, and an error is raised in its place. The thread ends
    when the generator is closed.
    """
    thread = concurrent.futures.ThreadPoolExecutor(1)
    wait = True
    try:
        waiting = collections.deque(
            thread.submit(next, items, _END) for _ in range(size)
        )
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(thread.submit(next, items, _END))
            yield item
    except KeyboardInterrupt:
        wait = False  # an item may take minutes
        raise
    finally:
        thread.shutdown(wait, cancel_futures=True)

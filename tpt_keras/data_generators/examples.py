"""Collections of tokenized examples with random access, and views of them."""

import functools
import hashlib
import itertools
import logging
import math
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Self
from typing import TypeAlias

import numpy as np

from tpt_keras.answer import WORDS
from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

# Sequences that are computed at once, which bounds the memory.
_CHUNK = 8192
# Questions whose hashing takes more than a few seconds.
_SLOW_TO_HASH = 2**22
# Examples of which one start is kept in memory.
_BLOCK = 8
_ROUNDS = 4

_log = logging.getLogger(__name__)


# Indices of examples.
Indices: TypeAlias = Sequence[int] | np.ndarray


class Sequences:
    """Token sequences of different lengths, one after another in `tokens`."""

    def __init__(self, tokens: np.ndarray, lengths: np.ndarray) -> None:
        self.tokens = tokens
        self.lengths = lengths

    @functools.cached_property
    def starts(self) -> np.ndarray:
        return np.cumsum(self.lengths) - self.lengths

    def __getitem__(self, rows):
        return gather(self.tokens, self.starts[rows], self.lengths[rows])


def gather(
    tokens: np.ndarray, starts: np.ndarray, lengths: np.ndarray
) -> Sequences:
    """Copies parts of a flat array into new `Sequences`."""
    parts = [np.zeros(0, tokens.dtype)]
    for first in range(0, len(starts), _CHUNK):
        chunk_lengths = lengths[first : first + _CHUNK]
        ends = np.cumsum(chunk_lengths)
        shifts = starts[first : first + _CHUNK] - (ends - chunk_lengths)
        indices = np.repeat(shifts, chunk_lengths) + np.arange(ends[-1])
        parts.append(tokens[indices])
    return Sequences(np.concatenate(parts), lengths)


class Examples:
    """Random access to examples: pairs of a source and a target sequence.

    A subclass has a length, a `vocabulary` (the symbols, each at its token id)
    and the methods `read` and `lengths`.
    """

    vocabulary: tuple[str, ...] = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def read(self, indices: Indices) -> tuple[Sequences, Sequences]:
        """Reads the sources and the targets of examples, as two `Sequences`."""
        raise NotImplementedError

    def lengths(self, indices: Indices) -> np.ndarray:
        """Reads the source and target lengths of examples, `(count, 2)`."""
        raise NotImplementedError

    def texts(self, indices: Indices) -> list[tuple[str, str]]:
        """Reads examples as a list of pairs of strings."""
        symbols = np.array(self.vocabulary, dtype=object)
        blank = " " if WORDS in self.vocabulary else ""
        columns = []
        for part in self.read(indices):
            ends = part.starts + part.lengths
            slices = map(slice, part.starts, ends)
            columns.append(
                [blank.join(symbols[part.tokens[s]]) for s in slices]
            )
        return list(zip(*columns))


class ArrayExamples(Examples):
    """Examples in arrays, which may be memory maps.

    Args:
        tokens: Unsigned integer array: source, target, source, target.
        all_lengths: Unsigned integer array `(examples, 2)` of the source and
            target lengths.
        vocabulary: The symbols, each at its token id.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        all_lengths: np.ndarray,
        vocabulary: Sequence[str],
    ) -> None:
        self.tokens = tokens
        self.vocabulary = tuple(vocabulary)
        self.all_lengths = all_lengths
        # The starts of some examples: those of all would take more memory
        # than the tokens.
        sums = np.add.reduceat(
            all_lengths.reshape(-1),
            np.arange(0, all_lengths.size, 2 * _BLOCK),
            dtype="int64",
        )
        self._block_starts = np.cumsum(sums) - sums

    @classmethod
    def from_texts(
        cls, pairs: Iterable[tuple[str, str]], vocabulary: Sequence[str]
    ) -> Self:
        """Tokenizes pairs of strings."""
        tokenizer = CharacterTokenizer(vocabulary)
        # The smallest type that holds all token ids.
        tokens = [np.zeros(0, np.min_scalar_type(len(vocabulary) - 1))]
        lengths = [np.zeros(0, "uint8")]
        texts = itertools.chain.from_iterable(pairs)
        while chunk := list(itertools.islice(texts, _CHUNK)):
            part = tokenizer.encode_flat(chunk)
            tokens.append(part.astype(tokens[0].dtype))
            chunk_lengths = [len(tokenizer.pieces(text)) for text in chunk]
            smallest = np.min_scalar_type(max(chunk_lengths))
            lengths.append(np.array(chunk_lengths, smallest))
        return cls(
            np.concatenate(tokens),
            np.concatenate(lengths).reshape(-1, 2),
            vocabulary,
        )

    def __len__(self):
        return len(self.all_lengths)

    def read(self, indices: Indices) -> tuple[Sequences, Sequences]:
        indices = np.asarray(indices, dtype="int64")
        sources, targets = self.lengths(indices).T
        starts = self._starts(indices)
        return (
            gather(self.tokens, starts, sources),
            gather(self.tokens, starts + sources, targets),
        )

    def lengths(self, indices: Indices) -> np.ndarray:
        indices = np.asarray(indices, dtype="int64")
        return self.all_lengths[indices].astype("int64")

    def _starts(self, indices):
        blocks, rest = np.divmod(indices, _BLOCK)
        within = np.arange(_BLOCK)
        # Those after the example are not counted, wherever they are.
        lengths = self.all_lengths.take(
            (blocks * _BLOCK)[:, None] + within, axis=0, mode="clip"
        ).sum(axis=2, dtype="int64")
        before = lengths.sum(axis=1, where=within < rest[:, None])
        return self._block_starts[blocks] + before


class ExampleView(Examples):
    """Some examples of others, whose indices are `rows`."""

    def __init__(self, examples: Examples, rows: np.ndarray) -> None:
        self._examples = examples
        self._rows = rows
        self.vocabulary = examples.vocabulary

    def __len__(self):
        return len(self._rows)

    def read(self, indices: Indices) -> tuple[Sequences, Sequences]:
        return self._examples.read(self._rows[np.asarray(indices)])

    def lengths(self, indices: Indices) -> np.ndarray:
        return self._examples.lengths(self._rows[np.asarray(indices)])


def question_keys(examples: Examples, seed: int) -> np.ndarray:
    """Hashes the questions of all examples to uint64, in their order.

    A hash depends on the question's text and the seed (below `2**32`) alone.
    """
    codes = np.array([*map(_code, examples.vocabulary)], "uint64")
    keys = [np.zeros(0, "uint64")]
    for first in range(0, len(examples), _CHUNK):
        indices = np.arange(first, min(first + _CHUNK, len(examples)))
        part, _ = examples.read(indices)
        starts, lengths = part.starts, part.lengths
        positions = np.arange(len(part.tokens)) - np.repeat(starts, lengths)
        weights = np.arange(lengths.max(), dtype="uint64")
        weights = _hash(weights + np.uint64((seed << 32) + 1))
        # Sums of the tokens before each, modulo 2**64.
        sums = np.zeros(len(positions) + 1, "uint64")
        np.cumsum(codes[part.tokens] * weights[positions], out=sums[1:])
        keys.append(_hash(sums[starts + lengths] - sums[starts]))
    return np.concatenate(keys)


def _code(symbol):
    if len(symbol) == 1:
        return ord(symbol)
    digest = hashlib.blake2b(symbol.encode(), digest_size=8)
    return int.from_bytes(digest.digest())


def set_apart(
    parts: Sequence[Examples],
    count: int,
    seed: int,
    never: Sequence[str] = (),
) -> tuple[list[ExampleView], list[ExampleView]]:
    """Sets `count` questions of each collection of examples apart.

    Their `question_keys` are the smallest; the questions in `never` are not
    among them. Returns, for each collection, all examples whose question no
    collection sets apart, and an example of each question set apart.
    """
    total = sum(map(len, parts))
    if total > _SLOW_TO_HASH:
        _log.info("Hashing %d questions, to set some apart.", total)
    keys = [question_keys(part, seed) for part in parts]
    pairs = [(question, "") for question in never]
    examples = ArrayExamples.from_texts(pairs, parts[0].vocabulary)
    others = question_keys(examples, seed)

    def first(keys):
        rows = np.unique(keys, return_index=True)[1]
        # A copy, because a view would keep the rows of all questions.
        return rows[~np.isin(keys[rows], others)][:count].copy()

    chosen = [*map(first, keys)]
    apart = np.concatenate([k[rows] for k, rows in zip(keys, chosen)])
    kept = [np.flatnonzero(~np.isin(each, apart)) for each in keys]
    return [*map(ExampleView, parts, kept)], [*map(ExampleView, parts, chosen)]


def readable_examples(examples: Examples, model_config: Any) -> Examples:
    """Selects the examples that a model can read and answer.

    Raises:
        UsageError: If the tokens of one are words and of the other characters.
    """
    if (WORDS in examples.vocabulary) != (WORDS in model_config.vocabulary):
        unit = "words" if WORDS in model_config.vocabulary else "characters"
        raise UsageError(
            f"The tokens of the model are {unit}, and those of the data are "
            f"not. Set `dataset_options` to tokens={unit}.",
            field="dataset_options",
        )
    limits = (model_config.max_question_length, model_config.max_answer_length)
    known = np.isin(examples.vocabulary, model_config.vocabulary)
    fits = np.ones(len(examples), bool)
    for first in range(0, len(examples), _CHUNK):
        indices = np.arange(first, min(first + _CHUNK, len(examples)))
        fits[indices] = (examples.lengths(indices) <= limits).all(axis=1)
        if not known.all():
            for part in examples.read(indices):
                rows = np.repeat(indices, part.lengths)
                fits[rows[~known[part.tokens]]] = False
    if fits.all():
        return examples
    return ExampleView(examples, np.flatnonzero(fits))


class ExampleMixture(Examples):
    """Several collections of examples as one, each with a weight.

    The weights are the parts' shares of the mixture, which is just long enough
    to hold every example. The examples of a part that is short for its weight
    occur several times, all others once.

    Args:
        parts: List of `Examples` of one vocabulary; empty ones are skipped.
        weights: Positive numbers, one a part. Defaults to equal weights.
    """

    def __init__(
        self, parts: Sequence[Examples], weights: Sequence[float] | None = None
    ) -> None:
        weights = [1.0] * len(parts) if weights is None else weights
        pairs = [(p, w) for p, w in zip(parts, weights) if len(p)]
        self._parts = [part for part, _ in pairs]
        if self._parts:
            self.vocabulary = self._parts[0].vocabulary
        lengths = np.array([len(part) for part in self._parts])
        shares = np.array([weight for _, weight in pairs], dtype="float64")
        per_weight = (lengths / shares).max(initial=0.0)
        stretched = np.rint(shares * per_weight).astype("int64")
        self._starts = np.concatenate([[0], np.cumsum(stretched)])

    def __len__(self):
        return int(self._starts[-1])

    def read(self, indices: Indices) -> tuple[Sequences, Sequences]:
        order, pieces = self._by_part(indices, "read")
        return tuple(
            Sequences(
                np.concatenate([each.tokens for each in column]),
                np.concatenate([each.lengths for each in column]),
            )[order]
            for column in zip(*pieces)
        )

    def lengths(self, indices: Indices) -> np.ndarray:
        order, pieces = self._by_part(indices, "lengths")
        return np.concatenate(pieces)[order]

    def _by_part(self, indices, method):
        """The results of each part, and the rows that restore the order."""
        indices = np.asarray(indices, dtype="int64")
        owners = np.searchsorted(self._starts, indices, "right") - 1
        by_part = np.argsort(owners, kind="stable")
        ends = np.searchsorted(owners[by_part], range(len(self._parts) + 1))
        pieces = [
            getattr(part, method)(
                (indices[by_part[first:end]] - start) % len(part)
            )
            for part, start, first, end in zip(
                self._parts, self._starts, ends, ends[1:]
            )
        ]
        return np.argsort(by_part, kind="stable"), pieces


def permute(
    positions: np.ndarray, count: int, seed: tuple[int, ...]
) -> np.ndarray:
    """Permutes positions by a pseudorandom permutation of `range(count)`.

    A Feistel network: positions are laid out in a nearly square grid, and in
    turns every row is rotated by a hash of its number and every column by a
    hash of its own. Each step can be undone, so that no two positions meet. A
    position that ends in one of the few cells beyond `count` is sent on until
    it comes out before (cycle walking).

    The result is the same on every machine and with every version of NumPy. The
    count is at most `2**62`, and the seed is a tuple of integers.
    """
    width = np.uint64(math.isqrt(max(count - 1, 0)) + 1)
    height = np.uint64(-(-count // int(width)))
    digest = hashlib.blake2b(repr(tuple(map(int, seed))).encode()).digest()
    keys = np.frombuffer(digest, "<u8").reshape(_ROUNDS, 2)
    permuted = np.array(positions, dtype="uint64", order="C")
    flat = permuted.reshape(-1)  # a view
    walking = np.arange(flat.size)
    while walking.size:
        rows, columns = np.divmod(flat[walking], width)
        for row_key, column_key in keys:
            columns = (columns + _hash(rows ^ row_key)) % width
            rows = (rows + _hash(columns ^ column_key)) % height
        flat[walking] = rows * width + columns
        walking = walking[flat[walking] >= count]
    return permuted.astype("int64")


def _hash(values):
    """63 well-mixed bits of uint64 values: the end of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(
        0xBF58476D1CE4E5B9
    )
    values = (values ^ (values >> np.uint64(27))) * np.uint64(
        0x94D049BB133111EB
    )
    # One bit less, so that a sum with a small number does not overflow.
    return (values ^ (values >> np.uint64(31))) >> np.uint64(1)

"""Collections of tokenized examples with random access, and views of them."""

import functools
import hashlib
import math

import numpy as np

from tpt_keras.errors import UsageError
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

# Examples whose tokens are gathered at once, which bounds the memory of the
# indices of tokens.
_GATHERED_AT_ONCE = 8192
_READ_AT_ONCE = 2**16
_ROUNDS = 4


class Sequences:
    """Token sequences of different lengths, stored in one flat array.

    Args:
        tokens: Integer array `(total,)`, one sequence after another.
        lengths: Integer array `(count,)`.

    Example:

    >>> sequences = Sequences(np.array([5, 6, 7]), np.array([1, 2]))
    >>> sequences[np.array([1, 0])].tokens.tolist()
    [6, 7, 5]
    """

    def __init__(self, tokens, lengths):
        self.tokens = tokens
        self.lengths = lengths

    @functools.cached_property
    def starts(self):
        return np.cumsum(self.lengths) - self.lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, rows):
        """Selects sequences by an integer array of rows."""
        starts, lengths = self.starts[rows], self.lengths[rows]
        return Sequences(gather(self.tokens, starts, lengths), lengths)


def ranges(starts, lengths):
    """Concatenates `range(start, start + length)` for each pair.

    Args:
        starts: Integer array `(count,)`.
        lengths: Integer array `(count,)`.

    Returns:
        int64 array `(sum of lengths,)`.

    Example:

    >>> ranges(np.array([7, 2]), np.array([2, 1])).tolist()
    [7, 8, 2]
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)


def gather(tokens, starts, lengths):
    """Copies sequences of a flat array into a new one."""
    parts = [
        tokens[ranges(starts[rows], lengths[rows])]
        for rows in (
            slice(first, first + _GATHERED_AT_ONCE)
            for first in range(0, len(starts), _GATHERED_AT_ONCE)
        )
    ]
    return np.concatenate(parts) if parts else np.zeros(0, tokens.dtype)


class Examples:
    """Random access to examples: pairs of a source and a target sequence.

    A subclass has a length, a `vocabulary` and a `read`.

    Attributes:
        vocabulary: The symbols, each at its token id.
    """

    vocabulary = ()

    def __len__(self):
        raise NotImplementedError

    def read(self, indices):
        """Reads examples.

        Args:
            indices: Integer array `(count,)`.

        Returns:
            Pair of `Sequences`, the sources and the targets, without start and
            end symbols.
        """
        raise NotImplementedError

    def lengths(self, indices):
        """Reads the lengths of examples alone.

        Args:
            indices: Integer array `(count,)`.

        Returns:
            Integer array `(count, 2)` of source and target lengths.
        """
        return np.stack([part.lengths for part in self.read(indices)], axis=-1)

    def texts(self, indices):
        """Reads examples as text.

        Args:
            indices: Integer array `(count,)`.

        Returns:
            List of pairs of strings, a question and its answer.
        """
        symbols = np.array(self.vocabulary, dtype=object)
        columns = []
        for part in self.read(indices):
            text = "".join(symbols[part.tokens])
            # A special symbol is longer than a character, but never stored.
            ends = part.starts + part.lengths
            columns.append([text[s:e] for s, e in zip(part.starts, ends)])
        return list(zip(*columns))


class ArrayExamples(Examples):
    """Examples in arrays, for example in memory.

    Args:
        tokens: Unsigned integer array: source, target, source, target.
        offsets: Integer array `(2 * examples + 1,)` of the places in `tokens`
            where the sequences start, and of the end.
        vocabulary: The symbols, each at its token id.
        start: First example. Defaults to 0.
        stop: End of the examples. Defaults to the end of `offsets`.
    """

    def __init__(self, tokens, offsets, vocabulary, start=0, stop=None):
        self._tokens = tokens
        self._offsets = offsets
        self.vocabulary = tuple(vocabulary)
        self._start = start
        self._length = (len(offsets) // 2 if stop is None else stop) - start

    @classmethod
    def from_texts(cls, pairs, vocabulary):
        """Tokenizes pairs of strings.

        Args:
            pairs: Pairs of a question and its answer.
            vocabulary: The symbols, each at its token id.

        Returns:
            An `ArrayExamples`.

        Raises:
            UsageError: If a character is not in the vocabulary.

        Example:

        >>> vocabulary = ("<pad>", "<start>", "<end>", "1", "2", "+")
        >>> examples = ArrayExamples.from_texts([("1+1", "2")], vocabulary)
        >>> examples.texts([0])
        [('1+1', '2')]
        """
        texts = [text for pair in pairs for text in pair]
        tokenizer = CharacterTokenizer(vocabulary)
        tokens = [np.zeros(0, token_dtype(vocabulary))]
        for start in range(0, len(texts), _READ_AT_ONCE):
            part = tokenizer.encode_flat(texts[start : start + _READ_AT_ONCE])
            tokens.append(part.astype(tokens[0].dtype))
        offsets = np.cumsum([0, *map(len, texts)], dtype="int64")
        return cls(np.concatenate(tokens), offsets, vocabulary)

    def __len__(self):
        return self._length

    def read(self, indices):
        rows = self._rows(indices)
        return self._sequences(rows), self._sequences(rows + 1)

    def lengths(self, indices):
        rows = self._rows(indices)
        first, middle, last = (self._offsets[rows + i] for i in range(3))
        return np.stack([middle - first, last - middle], axis=-1)

    def _rows(self, indices):
        return 2 * (np.asarray(indices, dtype="int64") + self._start)

    def _sequences(self, rows):
        starts = self._offsets[rows]
        lengths = self._offsets[rows + 1] - starts
        return Sequences(gather(self._tokens, starts, lengths), lengths)


def token_dtype(vocabulary):
    """The smallest unsigned integer type that holds all token ids."""
    return np.min_scalar_type(max(len(vocabulary) - 1, 0))


class _View(Examples):
    """Examples of another collection, at other places."""

    def __init__(self, examples):
        self._examples = examples
        self.vocabulary = examples.vocabulary

    def __len__(self):
        return len(self._examples)

    def _places(self, indices):
        """The places of examples in the other collection."""
        return indices

    def read(self, indices):
        return self._examples.read(self._places(indices))

    def lengths(self, indices):
        return self._examples.lengths(self._places(indices))


class ExampleSlice(_View):
    """A random part of examples, such as those set apart for validation.

    Args:
        examples: An `Examples`.
        start: First example of the part, in the shuffled order.
        stop: End of the part. Defaults to the end of `examples`.
        seed: Seed of the order. Slices of one seed whose ranges do not overlap
            have no example in common.
    """

    def __init__(self, examples, start=0, stop=None, seed=0):
        super().__init__(examples)
        self._range = range(len(examples))[start:stop]
        self._seed = seed

    def __len__(self):
        return len(self._range)

    def _places(self, indices):
        # The second seed keeps this order apart from those of the epochs.
        indices = np.asarray(indices) + self._range.start
        return permute(indices, len(self._examples), (self._seed, -1))


class ExampleSelection(_View):
    """Chosen examples.

    Args:
        examples: An `Examples`.
        chosen: Integer array `(count,)`.
    """

    def __init__(self, examples, chosen):
        super().__init__(examples)
        self._chosen = chosen

    def __len__(self):
        return len(self._chosen)

    def _places(self, indices):
        return self._chosen[indices]


class ExampleMixture(Examples):
    """Several collections of examples as one, each with a weight.

    A part's share of the mixture is its weight's share. The mixture is exactly
    as long as it takes to hold every example: the examples of a part that is
    short for its weight occur several times, all others once. Parts of equal
    length and weight are simply joined.

    Args:
        parts: List of `Examples` of one vocabulary; empty ones are skipped.
        weights: Positive numbers, one a part. Defaults to equal weights.
    """

    def __init__(self, parts, weights=None):
        weights = np.ones(len(parts)) if weights is None else weights
        if min(weights, default=1) <= 0:
            raise UsageError("The weights of modules must be positive.")
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

    def owners(self, indices):
        """Finds the part that each example of the mixture comes from.

        Args:
            indices: Integer array `(count,)`.

        Returns:
            Integer array `(count,)` of places among the parts that are not
            empty.
        """
        return np.searchsorted(self._starts, indices, "right") - 1

    def read(self, indices):
        order, pieces = self._by_owner(indices, "read")
        if not pieces:
            empty = np.zeros(0, "int64")
            return Sequences(empty, empty), Sequences(empty, empty)
        return tuple(
            Sequences(
                np.concatenate([each.tokens for each in column]),
                np.concatenate([each.lengths for each in column]),
            )[order]
            for column in zip(*pieces)
        )

    def lengths(self, indices):
        order, pieces = self._by_owner(indices, "lengths")
        return np.concatenate([np.zeros((0, 2), "int64"), *pieces])[order]

    def _by_owner(self, indices, method):
        """The results of each part, and the rows that restore the order."""
        indices = np.asarray(indices)
        owners = self.owners(indices)
        by_owner = np.argsort(owners, kind="stable")
        ends = np.searchsorted(owners[by_owner], range(len(self._parts) + 1))
        pieces = [
            getattr(part, method)(
                (indices[by_owner[first:end]] - start) % len(part)
            )
            for part, start, first, end in zip(
                self._parts, self._starts, ends, ends[1:]
            )
            if end > first
        ]
        return np.argsort(by_owner, kind="stable"), pieces


class CheckedExamples(_View):
    """A group's training examples, checked for their length as they are read.

    Args:
        examples: An `Examples`.
        group: Name of the group, for the error.
        limits: Dict of `max_question_length` and `max_answer_length`.

    Raises:
        UsageError: In `read` and `lengths`, if an example is too long.
    """

    def __init__(self, examples, group, limits):
        super().__init__(examples)
        self._group = group
        self._limits = limits

    def _places(self, indices):
        longest = self._examples.lengths(indices).max(axis=0, initial=0)
        for (field, limit), length in zip(self._limits.items(), longest):
            if length > limit:
                raise UsageError(
                    f"A training example of {self._group} has {length} "
                    f"characters, and the model's `{field}` is {limit}. Raise "
                    "it, or leave the module out.",
                    field=field,
                )
        return indices


def readable_examples(examples, model_config):
    """Selects the examples that a model can read and answer.

    Args:
        examples: An `Examples`; all of them are looked at.
        model_config: A `SequenceToSequenceConfig`.

    Returns:
        An `ExampleSelection`, or `examples` if the model can read all.
    """
    limits = (model_config.max_question_length, model_config.max_answer_length)
    known = set(model_config.vocabulary)
    is_known = np.array([s in known for s in examples.vocabulary], bool)
    fits = np.ones(len(examples), bool)
    for start in range(0, len(examples), _READ_AT_ONCE):
        indices = np.arange(start, min(start + _READ_AT_ONCE, len(examples)))
        fits[indices] = (examples.lengths(indices) <= limits).all(axis=1)
        if not is_known.all():
            for part in examples.read(indices):
                rows = np.repeat(indices, part.lengths)
                fits[rows[~is_known[part.tokens]]] = False
    if fits.all():
        return examples
    return ExampleSelection(examples, np.flatnonzero(fits))


def permute(positions, count, seed):
    """Places of positions in a pseudorandom permutation of `range(count)`.

    A Feistel network: positions are laid out in a nearly square grid, and in
    turns every row is rotated by a hash of its number and every column by a
    hash of its own. Each step can be undone, so that no two positions meet. A
    position that ends in one of the few cells beyond `count` is sent on until
    it comes out before (cycle walking).

    The result is the same on every machine and with every version of NumPy.

    Args:
        positions: Integer array, each at least 0 and less than `count`.
        count: Length of the permutation, at most `2**62`.
        seed: Tuple of integers.

    Returns:
        int64 array of the same shape.
    """
    width = np.uint64(math.isqrt(max(count - 1, 0)) + 1)
    height = np.uint64(-(-count // int(width)))
    digest = hashlib.blake2b(repr(tuple(map(int, seed))).encode()).digest()
    keys = np.frombuffer(digest, "<u8").reshape(_ROUNDS, 2)
    places = np.array(positions, dtype="uint64", order="C")
    flat = places.reshape(-1)  # a view
    walking = np.arange(flat.size)
    while walking.size:
        rows, columns = np.divmod(flat[walking], width)
        for row_key, column_key in keys:
            columns = (columns + _hash(rows ^ row_key)) % width
            rows = (rows + _hash(columns ^ column_key)) % height
        flat[walking] = rows * width + columns
        walking = walking[flat[walking] >= count]
    return places.astype("int64")


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

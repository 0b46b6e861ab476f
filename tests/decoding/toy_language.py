"""A model without weights, with plain Python searches as references."""

import itertools

import keras
import numpy as np
from keras import ops

NUM_CODES = 499


class ToyLanguage:
    """Random logits for every row, position and sequence of tokens.

    They are looked up by the tokens that the cache holds, not by the last one
    alone, so that a cache that does not follow its tokens gives other logits.
    What is decoded is compared with searches that know of no cache.

    Args:
        seed: Seed of the logits.
        num_rows: Number of rows, each with logits of its own.
        max_length: Most tokens to decode.
        vocabulary_size: Number of tokens.
        end_bias: What is added to the logits of the end.
        special_ids: The tokens for padding, start and end.
        possible_ids: The only tokens that there are. Defaults to all.
        dtype: Of the logits.
    """

    def __init__(
        self,
        seed=0,
        num_rows=3,
        max_length=5,
        vocabulary_size=6,
        end_bias=0.0,
        special_ids=(0, 1, 2),
        possible_ids=None,
        dtype="float32",
    ):
        rng = np.random.default_rng(seed)
        logits = 2.0 * rng.normal(size=(num_rows, NUM_CODES, vocabulary_size))
        self.pad_id, self.start_id, self.end_id = special_ids
        logits[..., self.end_id] += end_bias
        if possible_ids is not None:
            ids = np.arange(vocabulary_size)
            logits[..., ~np.isin(ids, possible_ids)] = -np.inf
        self.logits = ops.cast(logits.astype("float32"), dtype)
        logits = ops.convert_to_numpy(ops.cast(self.logits, "float32"))
        self.log_probs = logits - np.log(
            np.sum(np.exp(logits.astype("float64")), axis=-1, keepdims=True)
        )
        self.factors = rng.integers(1, NUM_CODES, size=max_length)
        self.rows = np.arange(num_rows)
        self.max_length = max_length
        self.vocabulary_size = vocabulary_size
        # Padding is no token of a sequence, however likely.
        self.tokens = [t for t in range(vocabulary_size) if t != self.pad_id]

    @property
    def num_rows(self):
        return len(self.rows)

    def only(self, row):
        """The same language with but one of its rows."""
        language = object.__new__(ToyLanguage)
        language.__dict__.update(self.__dict__)
        language.rows = self.rows[row : row + 1]
        return language

    def cache(self, beam_width=1):
        """The cache before the first step: rows, and no tokens yet (-1)."""
        rows = np.repeat(self.rows, beam_width)
        return {
            "row": ops.array(rows, dtype="int32"),
            "tokens": ops.full((len(rows), self.max_length), -1, dtype="int32"),
        }

    def step(self, token_ids, cache, index):
        """The function that a search steps with."""
        is_here = ops.equal(ops.arange(self.max_length), index)
        tokens = ops.where(
            is_here, ops.expand_dims(token_ids, -1), cache["tokens"]
        )
        factors = ops.array(self.factors, dtype="int32")
        codes = ops.sum((tokens + 1) * factors, axis=-1) % NUM_CODES
        logits = ops.take(
            ops.reshape(self.logits, (-1, self.vocabulary_size)),
            cache["row"] * NUM_CODES + codes,
            axis=0,
        )
        return logits, {"tokens": tokens}

    def arguments(self):
        """The arguments that both searches have, but for the cache."""
        return {
            "step": self.step,
            "batch_size": self.num_rows,
            "max_length": self.max_length,
            "start_id": self.start_id,
            "end_id": self.end_id,
            "pad_id": self.pad_id,
            "token_mask": np.arange(self.vocabulary_size) != self.pad_id,
        }

    def next_log_probs(self, row, sequence):
        """Log-probabilities of every token behind a sequence, float64."""
        tokens = np.array([self.start_id, *sequence])
        code = np.sum((tokens + 1) * self.factors[: len(tokens)]) % NUM_CODES
        return self.log_probs[self.rows[row], code]

    def log_prob(self, row, sequence):
        """Log-probability of a whole sequence, its end included."""
        return sum(
            self.next_log_probs(row, sequence[:position])[token]
            for position, token in enumerate(sequence)
        )

    def padded(self, sequence):
        """A sequence as the searches return it, as a list."""
        padding = [self.pad_id] * (self.max_length - len(sequence))
        return [*sequence, *padding]

    def all_sequences(self, row):
        """Every sequence there is with its log-probability, the best first."""
        sequences = [
            sequence
            for length in range(1, self.max_length + 1)
            for sequence in itertools.product(self.tokens, repeat=length)
            if self.end_id not in sequence[:-1]
            and (sequence[-1] == self.end_id or length == self.max_length)
        ]
        scored = [(s, self.log_prob(row, s)) for s in sequences]
        return sorted(scored, key=_by_log_prob)

    def beam_sequences(self, row, beam_width):
        """Runs beam search; returns the beams, best first, and its steps."""
        beams = [((), 0.0)]
        for num_steps in range(self.max_length + 1):
            going_on = [b for b in beams if self.end_id not in b[0]]
            if not going_on or num_steps == self.max_length:
                return beams, num_steps
            candidates = [b for b in beams if self.end_id in b[0]]
            for sequence, log_prob in going_on:
                log_probs = self.next_log_probs(row, sequence)
                candidates += [
                    ((*sequence, token), log_prob + log_probs[token])
                    for token in self.tokens
                ]
            candidates.sort(key=_by_log_prob)
            beams = candidates[:beam_width]


def _by_log_prob(scored):
    _, log_prob = scored
    return -log_prob


def loop_in_python(monkeypatch):
    """Makes `while_loop` run its body once a step, as it does not on JAX."""

    def while_loop(cond, body, loop_vars, maximum_iterations):
        for _ in range(maximum_iterations):
            if not cond(*loop_vars):
                break
            loop_vars = body(*loop_vars)
        return loop_vars

    monkeypatch.setattr(keras.ops, "while_loop", while_loop)

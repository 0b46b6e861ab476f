"""Samplers choose the next tokens while a model decodes."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops
from keras import tree

from tpt_keras.answer import IMPOSSIBLE
from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_positive_integer
from tpt_keras.typing import Tensor

# The multipliers of a 32-bit mixing function (C. Wellons, "Prospecting for
# hash functions", lowbias32), as signed integers.
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B - 2**32)
_SHIFTS = (16, 15, 16)


class Sampler:
    """The decoding loop, in pure `keras.ops`, that all samplers share.

    A subclass defines `choose`. It may follow several sequences of a row
    (`num_sequences`), and may keep a state of its own (`init_state`). A row in
    `SAMPLERS` gives it a name.
    """

    # The number of sequences that are followed for each row.
    num_sequences = 1

    def init_state(self, row_keys: Callable[[], Tensor]) -> dict[str, Any]:
        """Makes the sampler's own state, of `(batch * num_sequences, ...)`.

        `row_keys()`, int32 `(batch,)`, tells rows apart wherever they are in a
        batch.
        """
        return {}

    def choose(
        self, logits: Tensor, log_probs: Tensor, state: dict[str, Any]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Chooses the next token of every sequence.

        What is no token of an answer has no probability. In a sequence that
        has ended, padding is certain.

        Args:
            logits: float32 tensor `(sequences, vocabulary_size)`, minus
                infinity at what is impossible.
            log_probs: Their log-probabilities, -1e9 at what is impossible.
            state: Dict of tensors `(sequences, ...)`, among them the
                `log_probs` of the sequences so far, and the sampler's own state
                as `sampler`. `index` is the step, a scalar.

        Returns:
            int32 tensor of the next tokens `(sequences,)`, float32 tensor of
            the log-probabilities of the sequences with them, and int32 tensor
            of the sequence that each continues; `None` if each continues
            itself.
        """
        raise NotImplementedError

    def decode(
        self,
        step: Callable[..., tuple[Tensor, dict[str, Any]]],
        cache: dict[str, Any],
        batch_size: int | Tensor,
        max_length: int,
        start_id: int,
        end_id: int,
        pad_id: int,
        token_mask: Tensor,
        row_keys: Callable[[], Tensor] | None = None,
        while_loop: Callable[..., Any] | None = None,
    ) -> dict[str, Tensor]:
        """Decodes until every sequence has ended. A `Generator` calls it.

        Args:
            step: Function of the last tokens `(sequences,)`, the cache and the
                position (a scalar) that returns the logits `(sequences,
                vocabulary_size)` of the next token, and a dict of the entries
                of the cache that it changed. The sequences of a row are
                neighbours.
            cache: Dict of tensors `(sequences, ...)`, nested in any way.
            batch_size: Number of rows, an integer or a scalar tensor.
            max_length: Most tokens to decode.
            start_id: Token that every sequence starts with.
            end_id: Token that ends a sequence; it is part of the result.
            pad_id: Token behind the end, and nowhere else.
            token_mask: Boolean `(vocabulary_size,)`, true at tokens that may be
                chosen. The others keep their share of the probability, so that
                log-probabilities are the model's.
            row_keys: Function for `init_state`. Defaults to the numbers of the
                rows.
            while_loop: `keras.ops.while_loop` (default), or an `EarlyExit`.

        Returns:
            What `Generator.generate` returns. A sequence with a log-probability
            of -1e9 or less was not found.
        """
        check_positive_integer("max_length", max_length)
        numbers = functools.partial(ops.arange, batch_size, dtype="int32")
        state = {
            **self._first_state(batch_size, max_length, start_id, pad_id),
            "cache": cache,
            "sampler": self.init_state(row_keys or numbers),
        }
        (state,) = (while_loop or ops.while_loop)(
            lambda state: ops.logical_not(ops.all(state["is_ended"])),
            lambda state: (
                self._next_state(state, step, end_id, pad_id, token_mask),
            ),
            (state,),
            maximum_iterations=max_length,
        )
        by_row = (batch_size, self.num_sequences)
        return {
            "token_ids": ops.reshape(state["token_ids"], (*by_row, max_length)),
            "log_probs": ops.reshape(state["log_probs"], by_row),
        }

    def _first_state(self, batch_size, max_length, start_id, pad_id):
        count = batch_size * self.num_sequences
        # The sequences of a row start alike: the first alone is possible.
        is_copy = ops.arange(count, dtype="int32") % self.num_sequences > 0
        return {
            "index": ops.convert_to_tensor(0, dtype="int32"),
            "is_ended": ops.zeros((count,), dtype="bool"),
            "last_ids": ops.full((count,), start_id, dtype="int32"),
            # A `where` of two Python numbers has Keras's default dtype.
            "log_probs": IMPOSSIBLE * ops.cast(is_copy, "float32"),
            "token_ids": ops.full((count, max_length), pad_id, dtype="int32"),
        }

    def _next_state(self, state, step, end_id, pad_id, token_mask):
        index, is_ended = state["index"], state["is_ended"]
        logits, changed = step(state["last_ids"], state["cache"], index)
        logits, log_probs = _candidates(logits, is_ended, pad_id, token_mask)
        next_ids, log_probs, parents = self.choose(logits, log_probs, state)
        moved = is_ended, state["token_ids"], changed
        if parents is not None:
            moved = tree.map_structure(
                lambda values: ops.take(values, parents, axis=0), moved
            )
        is_ended, token_ids, changed = moved
        is_here = ops.equal(
            ops.arange(token_ids.shape[-1], dtype="int32"), index
        )
        return {
            **state,
            "index": index + 1,
            "is_ended": ops.logical_or(is_ended, ops.equal(next_ids, end_id)),
            "last_ids": next_ids,
            "log_probs": log_probs,
            "token_ids": ops.where(
                is_here, ops.expand_dims(next_ids, -1), token_ids
            ),
            "cache": {**state["cache"], **changed},
        }


class GreedySampler(Sampler):
    """Takes the likeliest token at every step."""

    def choose(
        self, logits: Tensor, log_probs: Tensor, state: dict[str, Any]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        # By logits: rounding makes some log-probabilities equal.
        return _extended(ops.argmax(logits, axis=-1), log_probs, state)


class TopKSampler(Sampler):
    """Samples each token from the likeliest ones.

    An answer depends on the seed and the question alone, on every backend.

    Args:
        k: Number of tokens to sample from.
        temperature: Divisor of the logits. Below one, likely tokens become
            likelier.
        seed: Integer.

    Raises:
        UsageError: If a value makes no sense.

    Example:

    ```python
    generator = Generator(model, TopKSampler(k=5, temperature=0.8, seed=1))
    generator.answer(["What is 1 + 1?"])
    ```
    """

    def __init__(
        self, k: int = 5, temperature: float = 1.0, seed: int = 0
    ) -> None:
        check_positive_integer("k", k)
        if not 0.0 < temperature < math.inf:
            raise UsageError(
                "`temperature` must be positive and finite. Received: "
                f"{temperature}."
            )
        self.k = k
        self.temperature = temperature
        self.seed = seed

    def init_state(self, row_keys: Callable[[], Tensor]) -> dict[str, Any]:
        return {"row_keys": row_keys()}

    def choose(
        self, logits: Tensor, log_probs: Tensor, state: dict[str, Any]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        k = min(self.k, logits.shape[-1])
        smallest = ops.top_k(logits, k)[0][:, -1:]
        # The largest sum of logit and Gumbel noise is a sample of the softmax.
        keys, index = state["sampler"]["row_keys"], state["index"]
        noise = _gumbel_noise(self.seed, keys, index, logits.shape[-1])
        noisy = ops.where(
            logits >= smallest, logits / self.temperature + noise, -math.inf
        )
        return _extended(ops.argmax(noisy, axis=-1), log_probs, state)


class BeamSampler(Sampler):
    """Follows the likeliest sequences: beam search.

    A sequence that has ended stays among the candidates. A width of 1 is
    greedy search, and a width of all sequences finds the best.

    Args:
        width: Number of sequences to follow, and to return.

    Raises:
        UsageError: If `width` is not a positive integer.
    """

    def __init__(self, width: int = 4) -> None:
        check_positive_integer("width", width)
        self.num_sequences = width

    def choose(
        self, logits: Tensor, log_probs: Tensor, state: dict[str, Any]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        width, vocabulary_size = self.num_sequences, logits.shape[-1]
        log_probs = ops.expand_dims(state["log_probs"], -1) + log_probs
        log_probs, chosen = ops.top_k(
            ops.reshape(log_probs, (-1, width * vocabulary_size)), width
        )
        rows = ops.arange(ops.shape(chosen)[0], dtype="int32")
        first = ops.expand_dims(rows * width, -1)
        parents = ops.reshape(first + chosen // vocabulary_size, (-1,))
        next_ids = ops.cast(chosen % vocabulary_size, "int32")
        return (
            ops.reshape(next_ids, (-1,)),
            ops.reshape(log_probs, (-1,)),
            parents,
        )


SAMPLERS = {
    "beam": BeamSampler,
    "greedy": GreedySampler,
    "top_k": TopKSampler,
}


def get_sampler(sampler: str | Sampler) -> Sampler:
    """Returns a `Sampler` by its name in `SAMPLERS`, or itself."""
    if isinstance(sampler, Sampler):
        return sampler
    check_choice("sampler", sampler, SAMPLERS)
    return SAMPLERS[sampler]()


def _candidates(logits, is_ended, pad_id, token_mask):
    """Logits and log-probabilities of what may follow each sequence."""
    is_ended = ops.expand_dims(is_ended, -1)
    logits = ops.cast(logits, "float32")
    is_pad = np.arange(logits.shape[-1]) == pad_id
    is_possible = ops.where(is_ended, is_pad, token_mask)
    log_probs = ops.where(is_ended, 0.0, ops.log_softmax(logits, axis=-1))
    logits = ops.where(is_ended, 0.0, logits)
    return (
        ops.where(is_possible, logits, -math.inf),
        ops.where(is_possible, log_probs, IMPOSSIBLE),
    )


def of_tokens(log_probs, token_ids):
    """Picks from the last axis. `take_along_axis` is more ops on TensorFlow."""
    vocabulary = ops.arange(log_probs.shape[-1], dtype="int32")
    is_token = ops.equal(ops.expand_dims(token_ids, -1), vocabulary)
    return ops.sum(ops.where(is_token, log_probs, 0.0), axis=-1)


def _extended(next_ids, log_probs, state):
    next_ids = ops.cast(next_ids, "int32")
    log_probs = state["log_probs"] + of_tokens(log_probs, next_ids)
    return next_ids, log_probs, None


def row_keys(token_ids: Tensor, pad_id: int) -> Tensor:
    """Hashes rows of tokens, whatever padding is behind them: `(batch,)`."""
    token_ids = ops.cast(token_ids, "int32")
    positions = ops.arange(ops.shape(token_ids)[1], dtype="int32")
    hashed = _mixed(_mixed(token_ids) + positions)
    is_real = ops.cast(ops.not_equal(token_ids, pad_id), "int32")
    return ops.sum(hashed * is_real, axis=-1)


def _gumbel_noise(seed, keys, index, count):
    """Samples `count` numbers of the standard Gumbel distribution for each key.

    Keras's own random numbers depend on the position in a batch.
    """
    seed = (seed + 2**31) % 2**32 - 2**31
    keys = _mixed(_mixed(keys + seed) + ops.cast(index, "int32"))
    numbers = ops.arange(count, dtype="int32")
    bits = _mixed(ops.expand_dims(keys, -1) + _mixed(numbers + 1))
    # The middles of 2 ** 23 intervals of (0, 1), all of them exact.
    uniform = ops.cast(ops.bitwise_and(bits, 2**23 - 1), "float32")
    uniform = (uniform + 0.5) / 2.0**23
    return -ops.log(-ops.log(uniform))


def _mixed(bits):
    for shift, multiplier in zip(_SHIFTS, (*_MULTIPLIERS, 1)):
        # Signed shifts copy the sign, which the mask removes.
        shifted = ops.bitwise_and(
            ops.right_shift(bits, shift), 2 ** (32 - shift) - 1
        )
        bits = ops.bitwise_xor(bits, shifted) * multiplier
    return bits

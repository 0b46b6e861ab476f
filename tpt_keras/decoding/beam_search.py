import math

from keras import ops
from keras import tree

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_positive_integer

# The log-probability of what cannot be; minus infinity would make NaNs.
IMPOSSIBLE = -1e9


def beam_search(
    step,
    cache,
    batch_size,
    max_length,
    start_id,
    end_id,
    pad_id,
    beam_width,
    length_penalty=0.0,
    while_loop=None,
):
    """Decodes the likeliest sequences that a beam of some width finds.

    A beam that has ended stays among the candidates with its score, so that a
    width of 1 is greedy search, and a width of all sequences finds the best.
    Stops when every beam of every row has ended.

    Args:
        step: Function of the last tokens `(batch * beam_width,)`, the cache
            and the position (a scalar) that returns the logits `(batch *
            beam_width, vocabulary_size)` of the next token, and a dict of
            those entries of the cache that it changed. The beams of a row are
            neighbours.
        cache: Dict of tensors `(batch * beam_width, ...)`, nested in any way;
            what no step changes is the same for all beams of a row.
        batch_size: Number of rows, an integer or a scalar tensor.
        max_length: Most tokens to decode, an integer.
        start_id: Token that every row starts with.
        end_id: Token that ends a row; it is part of the result.
        pad_id: Token behind the end, and nowhere else.
        beam_width: Number of sequences that are followed, an integer.
        length_penalty: How much longer sequences are preferred: sequences are
            ranked by their log-probability over `penalty_divisor`. Defaults
            to `0.0`, by log-probability alone.
        while_loop: See `greedy_search`; a row of the state is a beam here.

    Returns:
        Dict, the best sequence of a row first: `token_ids`, int32 `(batch,
        beam_width, max_length)` without the start token; `log_probs` and
        `scores`, float32 `(batch, beam_width)`. Where there are fewer
        sequences than `beam_width`, the rest have log-probabilities of -1e9
        or less.

    Raises:
        UsageError: If `max_length` or `beam_width` is no positive integer, or
            `length_penalty` no finite number.
    """
    check_positive_integer("max_length", max_length)
    check_positive_integer("beam_width", beam_width)
    # All state is flat, `(batch * beam_width, ...)`.
    num_beams = batch_size * beam_width
    positions = ops.arange(max_length)

    def is_going_on(state):
        return ops.logical_not(ops.all(state["is_ended"]))

    def decode_one(state):
        index, is_ended = state["index"], state["is_ended"]
        logits, changed = step(state["last_ids"], state["cache"], index)
        log_probs = _extend(state["log_probs"], logits, is_ended, pad_id)
        lengths = state["lengths"] + ops.cast(
            ops.logical_not(is_ended), "int32"
        )
        beams, next_ids, log_probs = _best_candidates(
            log_probs, lengths, beam_width, length_penalty
        )
        is_ended, lengths, token_ids, changed = tree.map_structure(
            lambda values: ops.take(values, beams, axis=0),
            (is_ended, lengths, state["token_ids"], changed),
        )
        state = {
            "index": index + 1,
            "is_ended": ops.logical_or(is_ended, ops.equal(next_ids, end_id)),
            "last_ids": next_ids,
            "lengths": lengths,
            "log_probs": log_probs,
            "token_ids": ops.where(
                ops.equal(positions, index),
                ops.expand_dims(next_ids, -1),
                token_ids,
            ),
            "cache": {**state["cache"], **changed},
        }
        return (state,)

    state = _first_state(
        cache, num_beams, beam_width, max_length, start_id, pad_id
    )
    (state,) = (while_loop or ops.while_loop)(
        is_going_on, decode_one, (state,), maximum_iterations=max_length
    )
    log_probs, token_ids = state["log_probs"], state["token_ids"]
    by_row = (batch_size, beam_width)
    scores = log_probs / penalty_divisor(state["lengths"], length_penalty)
    return {
        "token_ids": ops.reshape(token_ids, (*by_row, max_length)),
        "log_probs": ops.reshape(log_probs, by_row),
        "scores": ops.reshape(scores, by_row),
    }


def penalty_divisor(lengths, length_penalty):
    """What log-probabilities are divided by: `((5 + length) / 6) ** penalty`.

    As in tensor2tensor, and in Wu et al. 2016 (equation 14).

    Args:
        lengths: Integer tensor, the end symbol included.
        length_penalty: Float; `0.0` for none.

    Returns:
        float32 tensor of the shape of `lengths`.

    Raises:
        UsageError: If `length_penalty` is no finite number.
    """
    if not math.isfinite(length_penalty):
        raise UsageError(
            f"length_penalty must be a finite number. Received: "
            f"{length_penalty}."
        )
    return ops.power((5.0 + ops.cast(lengths, "float32")) / 6.0, length_penalty)


def _first_state(cache, num_beams, beam_width, max_length, start_id, pad_id):
    # The beams of a row start alike: but for the first, they are not there.
    is_first = ops.equal(ops.arange(num_beams) % beam_width, 0)
    return {
        "index": ops.convert_to_tensor(0, dtype="int32"),
        "is_ended": ops.zeros((num_beams,), dtype="bool"),
        "last_ids": ops.full((num_beams,), start_id, dtype="int32"),
        "lengths": ops.zeros((num_beams,), dtype="int32"),
        # Not a `where` of Python numbers: that has Keras's default dtype.
        "log_probs": IMPOSSIBLE
        * ops.cast(ops.logical_not(is_first), "float32"),
        "token_ids": ops.full((num_beams, max_length), pad_id, dtype="int32"),
        "cache": cache,
    }


def _extend(log_probs, logits, is_ended, pad_id):
    """Log-probabilities of beams `(beams,)` with each token behind them.

    What has ended goes on in one way: with padding, which costs nothing. What
    has not goes on with anything else.
    """
    is_ended = ops.expand_dims(is_ended, -1)
    is_pad = ops.equal(ops.arange(logits.shape[-1]), pad_id)
    of_tokens = ops.where(
        is_ended, 0.0, ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    )
    return ops.expand_dims(log_probs, -1) + ops.where(
        ops.equal(is_pad, is_ended), of_tokens, IMPOSSIBLE
    )


def _best_candidates(log_probs, lengths, beam_width, length_penalty):
    """The best continuations of every row, the best first.

    Args:
        log_probs: Tensor `(batch * beam_width, vocabulary_size)`.
        lengths: Lengths of the candidates `(batch * beam_width,)`.
        beam_width: Number of candidates to take.
        length_penalty: See `beam_search`.

    Returns:
        Which beam a candidate continues, with which token, and its
        log-probability, all `(batch * beam_width,)`.
    """
    vocabulary_size = log_probs.shape[-1]
    divisor = penalty_divisor(lengths, length_penalty)
    scores = log_probs / ops.expand_dims(divisor, -1)
    _, chosen = ops.top_k(
        ops.reshape(scores, (-1, beam_width * vocabulary_size)), beam_width
    )
    rows = ops.arange(ops.shape(chosen)[0], dtype="int32")
    first_beams = ops.expand_dims(rows * beam_width, -1)
    beams = ops.reshape(first_beams + chosen // vocabulary_size, (-1,))
    next_ids = ops.reshape(ops.cast(chosen % vocabulary_size, "int32"), (-1,))
    places = beams * vocabulary_size + next_ids
    return beams, next_ids, ops.take(ops.reshape(log_probs, (-1,)), places)

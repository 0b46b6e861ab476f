import math

from keras import ops

from tpt_keras.errors import check_positive_integer


def greedy_search(
    step,
    cache,
    batch_size,
    max_length,
    start_id,
    end_id,
    pad_id,
    while_loop=None,
):
    """Decodes by taking the likeliest token at every step.

    Stops when every row has ended. A row that has ended is padded; before its
    end padding is never taken, however likely, for models mask what they read
    of it.

    Args:
        step: Function of the last tokens `(batch,)`, the cache and the
            position (a scalar) that returns the logits `(batch,
            vocabulary_size)` of the next token, and a dict of those entries
            of the cache that it changed.
        cache: Dict of tensors, nested in any way.
        batch_size: Number of rows, an integer or a scalar tensor.
        max_length: Most tokens to decode, an integer.
        start_id: Token that every row starts with.
        end_id: Token that ends a row; it is part of the result.
        pad_id: Token behind the end, and nowhere else.
        while_loop: Function that runs the steps, with the arguments of
            `keras.ops.while_loop`, which is the default: a condition, a body,
            a tuple of the state and a number of steps. The state is a dict
            of tensors `(batch, ...)`, but for the scalar `index`; its
            `is_ended` tells rows that go on as they are.

    Returns:
        The tokens, int32 `(batch, max_length)` without the start token, and
        the log-probabilities of what they are up to the end, float32
        `(batch,)`.

    Raises:
        UsageError: If `max_length` is no positive integer.
    """
    check_positive_integer("max_length", max_length)
    positions = ops.expand_dims(ops.arange(max_length), 0)

    def is_going_on(state):
        return ops.logical_not(ops.all(state["is_ended"]))

    def decode_one(state):
        index, is_ended = state["index"], state["is_ended"]
        logits, changed = step(state["last_ids"], state["cache"], index)
        logits = ops.cast(logits, "float32")
        is_pad = ops.equal(ops.arange(logits.shape[-1]), pad_id)
        of_tokens = ops.log_softmax(logits, axis=-1)
        best = ops.max(ops.where(is_pad, -math.inf, of_tokens), axis=-1)
        # Of the logits, for rounding makes equals of some log-probabilities.
        next_ids = ops.argmax(ops.where(is_pad, -math.inf, logits), axis=-1)
        next_ids = ops.cast(next_ids, "int32")
        next_ids = ops.where(is_ended, pad_id, next_ids)
        state = {
            "index": index + 1,
            "is_ended": ops.logical_or(is_ended, ops.equal(next_ids, end_id)),
            "last_ids": next_ids,
            "log_probs": state["log_probs"] + ops.where(is_ended, 0.0, best),
            "token_ids": ops.where(
                ops.equal(positions, index),
                ops.expand_dims(next_ids, -1),
                state["token_ids"],
            ),
            "cache": {**state["cache"], **changed},
        }
        return (state,)

    state = {
        "index": ops.convert_to_tensor(0, dtype="int32"),
        "is_ended": ops.zeros((batch_size,), dtype="bool"),
        "last_ids": ops.full((batch_size,), start_id, dtype="int32"),
        "log_probs": ops.zeros((batch_size,), dtype="float32"),
        "token_ids": ops.full((batch_size, max_length), pad_id, dtype="int32"),
        "cache": cache,
    }
    (state,) = (while_loop or ops.while_loop)(
        is_going_on, decode_one, (state,), maximum_iterations=max_length
    )
    return state["token_ids"], state["log_probs"]

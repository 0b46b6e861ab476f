import math

from keras import ops

from tpt_keras.errors import check_positive_integer


def greedy_search(
    step, cache, batch_size, max_length, start_id, end_id, pad_id
):
    """Decodes by taking the likeliest token at every step.

    Stops when every row has ended. A row that has ended is padded; before its
    end padding is never taken, however likely, for models mask what they read
    of it.

    Args:
        step: Function of the last tokens `(batch,)`, the cache and the
            position (a scalar) that returns the logits `(batch,
            vocabulary_size)` of the next token and the updated cache.
        cache: Tensors, nested in any way, that `step` takes and returns.
        batch_size: Number of rows, an integer or a scalar tensor.
        max_length: Most tokens to decode, an integer.
        start_id: Token that every row starts with.
        end_id: Token that ends a row; it is part of the result.
        pad_id: Token behind the end, and nowhere else.

    Returns:
        The tokens, int32 `(batch, max_length)` without the start token, and
        the log-probabilities of what they are up to the end, float32
        `(batch,)`.

    Raises:
        UsageError: If `max_length` is no positive integer.
    """
    check_positive_integer("max_length", max_length)
    positions = ops.expand_dims(ops.arange(max_length), 0)

    def is_going_on(index, last_ids, is_ended, log_probs, decoded_ids, cache):
        return ops.logical_not(ops.all(is_ended))

    def decode_one(index, last_ids, is_ended, log_probs, decoded_ids, cache):
        logits, cache = step(last_ids, cache, index)
        logits = ops.cast(logits, "float32")
        is_pad = ops.equal(ops.arange(logits.shape[-1]), pad_id)
        of_tokens = ops.log_softmax(logits, axis=-1)
        best = ops.max(ops.where(is_pad, -math.inf, of_tokens), axis=-1)
        log_probs = log_probs + ops.where(is_ended, 0.0, best)
        # Of the logits, for rounding makes equals of some log-probabilities.
        next_ids = ops.argmax(ops.where(is_pad, -math.inf, logits), axis=-1)
        next_ids = ops.cast(next_ids, "int32")
        next_ids = ops.where(is_ended, pad_id, next_ids)
        decoded_ids = ops.where(
            ops.equal(positions, index),
            ops.expand_dims(next_ids, -1),
            decoded_ids,
        )
        is_ended = ops.logical_or(is_ended, ops.equal(next_ids, end_id))
        return index + 1, next_ids, is_ended, log_probs, decoded_ids, cache

    _, _, _, log_probs, decoded_ids, _ = ops.while_loop(
        is_going_on,
        decode_one,
        (
            ops.convert_to_tensor(0, dtype="int32"),
            ops.full((batch_size,), start_id, dtype="int32"),
            ops.zeros((batch_size,), dtype="bool"),
            ops.zeros((batch_size,), dtype="float32"),
            ops.full((batch_size, max_length), pad_id, dtype="int32"),
            cache,
        ),
        maximum_iterations=max_length,
    )
    return decoded_ids, log_probs

import keras
import numpy as np
import pytest
from keras import ops

from tpt_keras.decoding import greedy_search

PAD, START, END = 0, 1, 2


def decode(successors, starts, max_length):
    """Greedy search where the best next token depends on the last one only.

    The cache holds what every row really starts with, so that rows differ.
    """
    logits = ops.one_hot(ops.array(successors), len(successors))

    def step(token_ids, cache, index):
        last_ids = ops.where(ops.equal(index, 0), cache, token_ids)
        return ops.take(logits, last_ids, axis=0), cache

    return ops.convert_to_numpy(
        greedy_search(
            step,
            ops.array(starts, dtype="int32"),
            batch_size=len(starts),
            max_length=max_length,
            start_id=START,
            end_id=END,
            pad_id=PAD,
        )
    )


def reference(successors, starts, max_length):
    rows = np.full((len(starts), max_length), PAD)
    for row, token in zip(rows, starts):
        for position in range(max_length):
            token = successors[token]
            row[position] = token
            if token == END:
                break
    return rows


# 7 -> 6 -> 5 -> 4 -> 3 -> the end; 8 and 9 go on for ever.
CHAIN = [3, 3, 9, 2, 3, 4, 5, 6, 9, 8]


@pytest.mark.parametrize(
    ("starts", "expected"),
    [
        ([3], [[2, 0, 0, 0]]),
        ([4, 3, 5], [[3, 2, 0, 0], [2, 0, 0, 0], [4, 3, 2, 0]]),
        ([6, 7], [[5, 4, 3, 2], [6, 5, 4, 3]]),
        ([8, 3], [[9, 8, 9, 8], [2, 0, 0, 0]]),
    ],
)
def test_pads_behind_the_end(starts, expected):
    decoded = decode(CHAIN, starts, max_length=4)
    assert decoded.tolist() == expected
    assert decoded.dtype == "int32"


@pytest.mark.parametrize("max_length", [1, 2, 5, 12])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_reference(seed, max_length):
    rng = np.random.default_rng(seed)
    successors = rng.integers(1, 12, size=12)
    # Only the end may follow some token, so that some rows end.
    successors[rng.integers(3, 12)] = END
    starts = rng.integers(3, 12, size=6)
    np.testing.assert_array_equal(
        decode(successors, starts, max_length),
        reference(successors, starts, max_length),
    )


@pytest.mark.parametrize(
    ("starts", "max_length", "expected_steps"),
    [
        ([3], 9, 1),
        ([3, 5], 9, 3),
        ([7, 3, 4], 9, 5),
        ([8, 3], 9, 9),
        ([7], 2, 2),
    ],
)
def test_stops_when_every_row_has_ended(
    monkeypatch, starts, max_length, expected_steps
):
    def while_loop(cond, body, loop_vars, maximum_iterations):
        """A loop whose body runs once a step, as it does not on JAX."""
        for _ in range(maximum_iterations):
            if not cond(*loop_vars):
                break
            loop_vars = body(*loop_vars)
        return loop_vars

    monkeypatch.setattr(keras.ops, "while_loop", while_loop)
    logits = ops.one_hot(ops.array(CHAIN), len(CHAIN))
    seen = []

    def step(token_ids, cache, index):
        seen.append((int(index), int(token_ids[0])))
        last_ids = starts if int(index) == 0 else token_ids
        return ops.take(logits, ops.array(last_ids), axis=0), cache

    decoded = greedy_search(
        step,
        (),
        batch_size=len(starts),
        max_length=max_length,
        start_id=START,
        end_id=END,
        pad_id=PAD,
    )
    assert decoded.shape == (len(starts), max_length)
    assert [index for index, _ in seen] == list(range(expected_steps))
    # A step gets the tokens that the last one returned.
    assert [token_id for _, token_id in seen] == [
        START,
        *ops.convert_to_numpy(decoded)[0, : expected_steps - 1],
    ]


def test_the_cache_goes_from_step_to_step():
    # Token 3 + n at step n, as counted by the cache.
    def step(token_ids, cache, index):
        logits = ops.one_hot(ops.stack([cache["count"] + 3] * 2), 9)
        return logits, {"count": cache["count"] + 1}

    decoded = greedy_search(
        step,
        {"count": ops.array(0, dtype="int32")},
        batch_size=2,
        max_length=4,
        start_id=START,
        end_id=END,
        pad_id=PAD,
    )
    assert ops.convert_to_numpy(decoded).tolist() == [[3, 4, 5, 6]] * 2

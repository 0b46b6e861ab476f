import keras
import numpy as np
import pytest
from keras import ops

from tests.decoding.compiled import compiled
from tests.decoding.toy_language import ToyLanguage
from tests.decoding.toy_language import loop_in_python
from tpt_keras.decoding import greedy_search
from tpt_keras.errors import UsageError

PAD, START, END = 0, 1, 2


def decode(successors, starts, max_length):
    """Greedy search where the best next token depends on the last one only.

    The cache holds what every row really starts with, so that rows differ.
    """
    logits = ops.one_hot(ops.array(successors), len(successors))

    def step(token_ids, cache, index):
        last_ids = ops.where(ops.equal(index, 0), cache["starts"], token_ids)
        return ops.take(logits, last_ids, axis=0), {}

    token_ids, log_probs = greedy_search(
        step,
        {"starts": ops.array(starts, dtype="int32")},
        batch_size=len(starts),
        max_length=max_length,
        start_id=START,
        end_id=END,
        pad_id=PAD,
    )
    return ops.convert_to_numpy(token_ids), ops.convert_to_numpy(log_probs)


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
# Of every token in it: one logit of 1 among nine of 0.
LOG_PROB_IN_CHAIN = 1.0 - np.log(np.e + 9.0)


@pytest.mark.parametrize(
    ("starts", "expected", "lengths"),
    [
        ([3], [[2, 0, 0, 0]], [1]),
        ([4, 3, 5], [[3, 2, 0, 0], [2, 0, 0, 0], [4, 3, 2, 0]], [2, 1, 3]),
        ([6, 7], [[5, 4, 3, 2], [6, 5, 4, 3]], [4, 4]),
        ([8, 3], [[9, 8, 9, 8], [2, 0, 0, 0]], [4, 1]),
    ],
)
def test_pads_behind_the_end(starts, expected, lengths):
    token_ids, log_probs = decode(CHAIN, starts, max_length=4)
    assert token_ids.tolist() == expected
    assert token_ids.dtype == "int32"
    # The padding costs nothing.
    np.testing.assert_allclose(
        log_probs, np.array(lengths) * LOG_PROB_IN_CHAIN, rtol=1e-5
    )


@pytest.mark.parametrize("max_length", [1, 2, 5, 12])
@pytest.mark.parametrize("seed", range(3))
def test_equals_the_reference(seed, max_length):
    rng = np.random.default_rng(seed)
    successors = rng.integers(1, 12, size=12)
    # Only the end may follow some token, so that some rows end.
    successors[rng.integers(3, 12)] = END
    starts = rng.integers(3, 12, size=6)
    token_ids, _ = decode(successors, starts, max_length)
    np.testing.assert_array_equal(
        token_ids, reference(successors, starts, max_length)
    )


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"max_length": 1},
        # Half of the rows end early.
        {"num_rows": 8, "max_length": 9, "end_bias": 2.0},
        {"special_ids": (3, 0, 1), "end_bias": 1.0},
        {"dtype": "float16", "end_bias": 1.0},
        {"dtype": "bfloat16", "end_bias": 1.0},
    ],
    ids=str,
)
def test_log_probs_are_those_of_the_tokens_up_to_the_end(kwargs):
    language = ToyLanguage(**kwargs)
    token_ids, log_probs = greedy_search(
        **language.arguments(), cache=language.cache()
    )
    assert keras.backend.standardize_dtype(token_ids.dtype) == "int32"
    assert keras.backend.standardize_dtype(log_probs.dtype) == "float32"
    assert tuple(log_probs.shape) == (language.num_rows,)
    sequences = list(map(language.greedy_sequence, range(language.num_rows)))
    assert ops.convert_to_numpy(token_ids).tolist() == [
        language.padded(sequence) for sequence in sequences
    ]
    np.testing.assert_allclose(
        ops.convert_to_numpy(log_probs),
        [language.log_prob(row, s) for row, s in enumerate(sequences)],
        rtol=1e-5,
        atol=1e-5,
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
    loop_in_python(monkeypatch)
    logits = ops.one_hot(ops.array(CHAIN), len(CHAIN))
    seen = []

    def step(token_ids, cache, index):
        seen.append((int(index), int(token_ids[0])))
        last_ids = starts if int(index) == 0 else token_ids
        return ops.take(logits, ops.array(last_ids), axis=0), {}

    decoded, _ = greedy_search(
        step,
        {},
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

    decoded, _ = greedy_search(
        step,
        {"count": ops.array(0, dtype="int32")},
        batch_size=2,
        max_length=4,
        start_id=START,
        end_id=END,
        pad_id=PAD,
    )
    assert ops.convert_to_numpy(decoded).tolist() == [[3, 4, 5, 6]] * 2


def test_compiles_for_a_batch_of_any_size():
    language = ToyLanguage(num_rows=7, end_bias=1.0)

    def search(rows):
        cache = {
            "row": rows,
            "tokens": ops.full(
                (ops.shape(rows)[0], language.max_length), -1, dtype="int32"
            ),
        }
        arguments = {
            **language.arguments(),
            "batch_size": ops.shape(rows)[0],
        }
        return greedy_search(**arguments, cache=cache)

    search = compiled(search, [None])
    expected_ids, expected_log_probs = greedy_search(
        **language.arguments(), cache=language.cache()
    )
    for size in (1, 7):
        token_ids, log_probs = search(np.arange(size, dtype="int32"))
        np.testing.assert_array_equal(token_ids, expected_ids[:size])
        np.testing.assert_allclose(
            log_probs, expected_log_probs[:size], rtol=1e-5
        )


@pytest.mark.parametrize("max_length", [0, -1, 2.0])
def test_a_length_that_makes_no_sense(max_length):
    with pytest.raises(UsageError, match=f"max_length .* {max_length} "):
        decode(CHAIN, [3], max_length)

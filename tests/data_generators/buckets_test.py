import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpt_keras.data_generators.buckets import MAX_PADDING
from tpt_keras.data_generators.buckets import MAX_PAIRS
from tpt_keras.data_generators.buckets import Buckets
from tpt_keras.data_generators.buckets import choose_length_pairs
from tpt_keras.data_generators.buckets import fitting_pair


def problem_lengths(seed, count=5000):
    """Problems of many kinds."""
    rng = np.random.default_rng(seed)
    sources = rng.integers(30, 100, count)
    targets = rng.choice([3, 8, 9, 20], count)
    return np.stack([sources, targets], axis=-1)


def padding(lengths, pairs):
    cells = pairs[fitting_pair(lengths, pairs)].sum(axis=0)
    return 1 - lengths.sum(axis=0) / cells


@pytest.mark.parametrize("seed", range(3))
def test_few_buckets_pad_little(seed):
    lengths = problem_lengths(seed)
    pairs = choose_length_pairs(lengths)
    assert len(pairs) <= MAX_PAIRS
    assert np.all(padding(lengths, pairs) < MAX_PADDING)
    # As many of equal steps leave more padding.
    sources = np.linspace(30, 100, MAX_PAIRS + 1, dtype=int)[1:]
    even = np.stack([sources, np.full(MAX_PAIRS, 20)], axis=-1)
    assert np.any(padding(lengths, even) > MAX_PADDING)


def test_longest_bucket_is_rounded_up():
    pairs = choose_length_pairs(np.array([[20, 3], [41, 9]]))
    assert pairs.tolist() == [[20, 3], [48, 12]]


@pytest.mark.parametrize(("short", "count"), [(44, 1), (30, 2), (3, 2)])
def test_no_more_buckets_than_needed(short, count):
    lengths = np.array([[48, 4], [short, 4], [short - 1, 4]])
    assert len(choose_length_pairs(lengths)) == count


@given(
    st.lists(
        st.tuples(st.integers(2, 162), st.integers(1, 31)),
        min_size=1,
        max_size=50,
    )
)
def test_every_problem_fits_its_bucket(lengths):
    lengths = np.array(lengths)
    pairs = choose_length_pairs(lengths)
    places = fitting_pair(lengths, pairs)
    assert np.all(lengths <= pairs[places])
    assert np.all(np.diff(pairs.sum(axis=1)) >= 0)
    for problem, place in zip(lengths, places):
        assert not np.any(np.all(problem <= pairs[:place], axis=1))
    # A longer problem goes to the longest bucket.
    assert fitting_pair(np.array([[200, 1]]), pairs) == len(pairs) - 1


LIMITS = (162, 31)


def test_pair_is_the_smallest_that_fits():
    buckets = Buckets([(48, 12), (20, 3), (44, 9)], LIMITS, pad_id=0)
    assert buckets.pairs == [(20, 3), (44, 9), (48, 12)]
    assert buckets.pair(1, 1) == (20, 3)
    assert buckets.pair(42, 9) == (44, 9)
    assert buckets.pair(45, 10) == (48, 12)
    # Longer than all of them, and than a model takes.
    assert buckets.pair(49, 1) == LIMITS
    assert buckets.pair(163, 31) == (324, 31)


def test_pairs_are_cut_to_the_limits():
    pairs = np.array([[30, 3], [168, 28], [176, 40]])
    buckets = Buckets(pairs, LIMITS, pad_id=0)
    assert buckets.pairs == [(30, 3), (162, 28), LIMITS]


def test_buckets_of_a_model_without_batches():
    model = types.SimpleNamespace(
        config=types.SimpleNamespace(
            max_question_length=160, max_answer_length=30
        ),
        tokenizer=types.SimpleNamespace(pad_id=0),
    )
    buckets = Buckets.of_model(model)
    assert buckets.pairs == [(41, 31), (81, 31), (122, 31), LIMITS]
    shorter = types.SimpleNamespace(length_pairs=[(24, 4), (76, 9)])
    assert buckets.known_pairs(shorter) == [(41, 31), (81, 31)]
    assert buckets.known_pairs() == buckets.pairs


def test_batch_is_padded_to_its_bucket():
    buckets = Buckets([(4, 2), (8, 3)], LIMITS, pad_id=7)
    ids = np.ones((2, 5), "int32")
    inputs, targets = buckets.pad(
        (
            {"encoder_token_ids": ids, "decoder_token_ids": ids[:, :3]},
            ids[:, 2:],
        ),
        rows=3,
    )
    assert inputs["encoder_token_ids"].shape == (3, 8)
    assert inputs["decoder_token_ids"].shape == targets.shape == (3, 3)
    assert (targets[2] == 7).all()
    assert (inputs["encoder_token_ids"][:2] == [1] * 5 + [7] * 3).all()

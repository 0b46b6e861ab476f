import collections

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data_generators.list_source import numbered_source
from tpt_keras.data_generators.problem_mixture import ProblemMixture
from tpt_keras.errors import UsageError


def named_sources(lengths):
    return [
        numbered_source(length, name=chr(ord("a") + index), max_length=5)
        for index, length in enumerate(lengths)
    ]


def counts(mixture):
    """How often each source occurs and how often each problem does."""
    questions, answers = mixture.read(np.arange(len(mixture)))
    assert len(questions) == len(answers)
    return (
        collections.Counter(question[:1].decode() for question in questions),
        collections.Counter(questions),
    )


@given(st.integers(1, 40), st.integers(1, 5))
def test_sources_of_one_length_are_joined(length, count):
    sources = named_sources([length] * count)
    mixture = ProblemMixture(sources)
    assert len(mixture) == length * count
    _, problems = counts(mixture)
    assert len(problems) == length * count
    assert set(problems.values()) == {1}


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.floats(0.2, 5.0)),
        min_size=1,
        max_size=5,
    )
)
def test_weights_are_shares(pairs):
    lengths, weights = zip(*pairs)
    mixture = ProblemMixture(named_sources(lengths), weights)
    shares, problems = counts(mixture)
    # Every problem is there, and no more of them than it takes.
    assert len(problems) == sum(lengths)
    pairs = [(le, w) for le, w in pairs if le]
    per_weight = max((le / w for le, w in pairs), default=0)
    for (name, share), (length, weight) in zip(sorted(shares.items()), pairs):
        assert share == pytest.approx(weight * per_weight, abs=0.51)
        times = [problems[q] for q in problems if q.startswith(name.encode())]
        assert sum(times) == share
        # Evenly stretched.
        assert max(times) - min(times) <= 1
        assert min(times) == share // length


def test_a_short_source_is_stretched():
    shares, problems = counts(ProblemMixture(named_sources([30, 10])))
    assert shares == {"a": 30, "b": 30}
    assert sorted(problems.values()) == [1] * 30 + [3] * 10
    shares, _ = counts(ProblemMixture(named_sources([30, 10]), [3, 1]))
    assert shares == {"a": 30, "b": 10}
    shares, _ = counts(ProblemMixture(named_sources([10, 10]), [1, 4]))
    assert shares == {"a": 10, "b": 40} or shares == {"a": 3, "b": 10}


def test_any_order_of_indices():
    mixture = ProblemMixture(named_sources([7, 3]), [2, 1])
    questions, answers = mixture.read(np.arange(len(mixture)))
    some = [9, 0, 3, 3, 8]
    for read, all_of_them in zip(mixture.read(some), (questions, answers)):
        assert read.tolist() == all_of_them[some].tolist()


def test_empty_sources_are_passed_over():
    mixture = ProblemMixture(named_sources([0, 4, 0, 2]), [9, 2, 9, 1])
    shares, problems = counts(mixture)
    assert shares == {"b": 4, "d": 2}
    assert set(problems.values()) == {1}
    assert len(ProblemMixture(named_sources([0, 0]))) == 0
    assert len(ProblemMixture([])) == 0


@pytest.mark.parametrize("weight", [0, -1.5])
def test_weights_that_make_no_sense(weight):
    with pytest.raises(UsageError, match="positive"):
        ProblemMixture(named_sources([3, 3]), [1, weight])

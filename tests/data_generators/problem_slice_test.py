import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data_generators.list_source import numbered_source
from tpt_keras.data_generators.permutation import permute
from tpt_keras.data_generators.problem_batches import ProblemBatches
from tpt_keras.data_generators.problem_slice import ProblemSlice
from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer


def questions_of(source):
    if not len(source):
        return []
    return source.read(np.arange(len(source)))[0].tolist()


@given(st.integers(1, 200), st.integers(0, 250), st.integers(0, 2**32))
def test_two_slices_are_disjoint_and_complete(count, cut, seed):
    source = numbered_source(count)
    before = questions_of(ProblemSlice(source, stop=cut, seed=seed))
    after = questions_of(ProblemSlice(source, start=cut, seed=seed))
    assert len(before) == min(cut, count)
    assert sorted(before + after) == sorted(questions_of(source))
    assert len(set(before + after)) == count


class NumberSource:
    """A source whose problems are their places, however many."""

    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def read(self, indices):
        assert indices.min() >= 0
        assert indices.max() < self._count
        return indices, indices


@pytest.mark.parametrize(
    "count", [4**power + offset for power in (8, 9, 10) for offset in (-1, 1)]
)
def test_validation_is_never_trained_on(count):
    source = NumberSource(count)
    validation, training = (
        part.read(np.arange(len(part)))[0]
        for part in (
            ProblemSlice(source, stop=1000, seed=3),
            ProblemSlice(source, start=1000, seed=3),
        )
    )
    assert len(validation) == 1000
    times = np.bincount(np.concatenate([validation, training]))
    assert len(times) == count
    assert np.all(times == 1)


def test_a_slice_is_random_and_depends_on_the_seed():
    source = numbered_source(1000)
    slices = [
        questions_of(ProblemSlice(source, stop=100, seed=seed))
        for seed in (0, 0, 1)
    ]
    assert slices[0] == slices[1]
    # Of 100 of 1000, a tenth is common by chance.
    assert len(set(slices[0]) & set(slices[2])) < 30
    first = questions_of(source)[:100]
    assert len(set(slices[0]) & set(first)) < 30


def test_the_middle():
    source = numbered_source(10)
    parts = [
        questions_of(ProblemSlice(source, start, stop, seed=5))
        for start, stop in ((0, 3), (3, 7), (7, None), (7, 3), (12, 15))
    ]
    assert [len(part) for part in parts] == [3, 4, 3, 0, 0]
    whole = [question for part in parts for question in part]
    assert sorted(whole) == sorted(questions_of(source))


def test_its_order_is_none_of_the_epochs():
    """Or the first epoch would visit the problems in the slice's order."""
    orders = [
        tuple(permute(np.arange(100), 100, (3, part)))
        for part in (-1, *range(20))
    ]
    assert orders[0] not in orders[1:]
    whole = ProblemSlice(numbered_source(100), seed=3)
    batches = ProblemBatches(whole, CharacterTokenizer(), 10, seed=3)
    assert len(batches) == 100

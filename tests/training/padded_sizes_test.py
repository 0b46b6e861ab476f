import pytest

from tpt_keras.training.padded_sizes import padded_size


@pytest.mark.parametrize("limit", [1, 31, 162, 10_000])
def test_few_sizes_that_pad_by_a_third_at_most(limit):
    sizes = [padded_size(size, limit) for size in range(1, 163)]
    assert sizes == sorted(sizes)
    for size, padded in enumerate(sizes, start=1):
        assert size <= padded <= max(size, limit, 8)
        assert padded <= max(8, 1.5 * size)
    if limit >= 162:
        assert len(set(sizes)) <= 10


def test_what_is_larger_than_the_limit_stays():
    assert padded_size(170, 162) == 170

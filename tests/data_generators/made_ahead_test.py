import threading

import pytest

from tpt_keras.data_generators.made_ahead import made_ahead


class Numbers:
    """Numbers that are counted as they are made, and an error."""

    def __init__(self, end):
        self.made = 0
        self.end = end
        self.reached = threading.Event()

    def __iter__(self):
        return self

    def __next__(self):
        if self.made == self.end:
            self.reached.set()
            raise OSError("the disk is gone")
        self.made += 1
        return self.made


def test_an_error_comes_behind_what_was_made_before():
    numbers = Numbers(end=5)
    ahead = made_ahead(numbers, size=10)
    assert next(ahead) == 1
    # It has happened already, and is nobody's business yet.
    assert numbers.reached.wait(10)
    assert [next(ahead) for _ in range(4)] == [2, 3, 4, 5]
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)


def test_no_more_is_made_than_asked_for_and_the_thread_ends():
    threads = threading.active_count()
    numbers = Numbers(end=10**9)
    ahead = made_ahead(numbers, size=3)
    assert [next(ahead), next(ahead)] == [1, 2]
    assert numbers.made <= 2 + 3
    assert threading.active_count() == threads + 1
    ahead.close()
    assert threading.active_count() == threads

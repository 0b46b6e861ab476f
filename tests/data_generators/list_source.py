import numpy as np


class ListSource:
    """A source of problems that are in memory.

    Args:
        problems: Pairs of bytes.
    """

    def __init__(self, problems):
        self._problems = list(problems)

    def __len__(self):
        return len(self._problems)

    def read(self, indices):
        """Reads problems; see `ProblemSource.read`."""
        questions = np.empty(len(indices), dtype=object)
        answers = np.empty(len(indices), dtype=object)
        for row, index in enumerate(indices):
            assert 0 <= index < len(self)
            questions[row], answers[row] = self._problems[index]
        return questions, answers


def numbered_source(count, name="a", max_length=40):
    """A source of different problems of many lengths."""
    rng = np.random.default_rng(len(name) + count)
    return ListSource(
        (
            f"{name}{index} {'x' * length}".encode(),
            f"{'1' * (1 + length % 7)}{index}".encode(),
        )
        for index, length in enumerate(rng.integers(0, max_length, count))
    )

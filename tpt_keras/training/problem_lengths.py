"""Which problems are too long for a model, in training and in evaluation."""

import numpy as np

from tpt_keras.data_generators.problem_selection import ProblemSelection
from tpt_keras.errors import UsageError

# Of a configuration: what limits a problem's question, and its answer.
_FIELDS = {"question": "max_question_length", "answer": "max_answer_length"}

# Problems that are looked at together.
_PROBLEMS_AT_ONCE = 2**16


class CheckedSource:
    """A module's training problems, of which none may be too long.

    They are looked at when they are read: there may be a hundred million.

    Args:
        source: A `ProblemSource`.
        module: Name of its module.
        config: A `SequenceToSequenceConfig`.
    """

    def __init__(self, source, module, config):
        self._source = source
        self._module = module
        self._config = config

    def __len__(self):
        return len(self._source)

    def read(self, indices):
        """Reads problems; see `ProblemSource.read`.

        Raises:
            UsageError: If one of them is too long.
        """
        problems = self._source.read(indices)
        for (part, field), texts in zip(_FIELDS.items(), problems):
            limit = getattr(self._config, field)
            longest = max(_lengths_beyond(limit, texts).values(), default=0)
            if longest:
                raise UsageError(
                    f"The module {self._module} has a training {part} of "
                    f"{longest} characters, and the model takes {limit}. Raise "
                    f"its limit (--hparams={field}={longest}, or more), or "
                    "leave the module out."
                )
        return problems


def problems_taken(source, config):
    """The problems of a source that are not too long.

    All of them are looked at, which is for evaluations.

    Args:
        source: A `ProblemSource`, or a part of one.
        config: A `SequenceToSequenceConfig`.

    Returns:
        A `ProblemSelection`, or the source where it has no other problems.
    """
    taken = np.ones(len(source), dtype=bool)
    for start in range(0, len(source), _PROBLEMS_AT_ONCE):
        stop = min(start + _PROBLEMS_AT_ONCE, len(source))
        problems = source.read(np.arange(start, stop))
        for field, texts in zip(_FIELDS.values(), problems):
            for row in _lengths_beyond(getattr(config, field), texts):
                taken[start + row] = False
    if taken.all():
        return source
    return ProblemSelection(source, np.flatnonzero(taken))


def _lengths_beyond(limit, texts):
    """Lengths of the texts of UTF-8 that are too long, by their places."""
    # None has more characters than bytes.
    lengths = {
        row: len(text.decode("utf-8", "replace"))
        for row, text in enumerate(texts)
        if len(text) > limit
    }
    return {row: length for row, length in lengths.items() if length > limit}

"""Problems of a prepared data folder, for commands that take some."""

import dataclasses
import itertools

from tpt_keras.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Problems:
    """Which problems a command takes; the fields are flags of it.

    Args:
        modules: Names of modules, patterns (numbers__*), or all.
        data_dir: Folder that prepare_data filled.
        split: Name of the split.
    """

    modules: tuple = ()
    data_dir: str = "data"
    split: str = "interpolate"

    def read(self, count):
        """The first problems of every module.

        Args:
            count: Problems of each module, at most.

        Returns:
            Dict of module to the lists of its questions and of their answers.
            A module that lacks the split is passed over.

        Raises:
            UsageError: If a name is unknown, or nothing is there.
        """
        import numpy as np

        from tpt_keras.data_generators.mathematics_modules import select_modules
        from tpt_keras.data_generators.prepared_data import problem_sources

        if count <= 0:
            raise UsageError("--count must be positive.")
        modules = select_modules(self.modules)
        sources = problem_sources(self.data_dir, modules, [self.split])
        if not any(map(len, sources.values())):
            raise UsageError(
                f"None of the modules {', '.join(modules)} has problems of "
                f"--split={self.split!r}."
            )
        problems = {}
        for module, source in sources.items():
            if len(source):
                texts = source.read(np.arange(min(count, len(source))))
                problems[module] = [
                    [text.decode() for text in column] for column in texts
                ]
        return problems


def all_together(problems):
    """The questions of all modules, and their answers.

    Args:
        problems: What `Problems.read` returns.

    Returns:
        Two lists of strings.
    """
    return [
        list(itertools.chain.from_iterable(texts))
        for texts in zip(*problems.values())
    ]

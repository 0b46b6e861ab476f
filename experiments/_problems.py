"""Problems of a prepared data folder, for commands that look at some."""

import itertools

from tpt_keras.errors import UsageError


def read_problems(modules, data_dir, split, count):
    """The first problems of every module.

    Args:
        modules: Names of modules, patterns, or all.
        data_dir: Folder that `prepare_data` filled.
        split: Name of the split; modules that lack it are passed over.
        count: Problems of each module, at most.

    Returns:
        Dict of module to the lists of its questions and of their answers.

    Raises:
        UsageError: If a name is unknown, or nothing is there.
    """
    import numpy as np

    from tpt_keras.data_generators.mathematics_modules import select_modules
    from tpt_keras.data_generators.prepared_data import problem_sources

    if count <= 0:
        raise UsageError("--count must be positive.")
    modules = select_modules(modules)
    sources = problem_sources(data_dir, modules, [split])
    if not any(map(len, sources.values())):
        raise UsageError(
            f"None of the modules {', '.join(modules)} has problems of "
            f"--split={split!r}."
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
        problems: What `read_problems` returns.

    Returns:
        Two lists of strings.
    """
    return [
        list(itertools.chain.from_iterable(texts))
        for texts in zip(*problems.values())
    ]

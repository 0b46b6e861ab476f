"""Shared parts of the benchmarks: problems, models, timing."""

import contextlib
import functools
import os
import pathlib
import random
import re
import statistics
import time

from tpt_keras.processes import available_cores
from tpt_keras.processes import spawned_pool

from .. import _cli


@contextlib.contextmanager
def in_processes(makers):
    """Makes functions in a process of its own each, and keeps them there.

    So frameworks share neither threads nor memory. The makers are a dict from
    names to a function that makes the function, and its arguments. Yields a
    dict from names to functions that call them.
    """
    # All cores for PyTorch, as for the others; and of a GPU's memory, which JAX
    # would take as a whole, what is needed.
    os.environ.setdefault("OMP_NUM_THREADS", str(available_cores()))
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with contextlib.ExitStack() as stack:
        functions = {}
        for name, maker in makers.items():
            process = stack.enter_context(spawned_pool(1, _start))
            process.submit(_make, *maker).result()
            functions[name] = functools.partial(_result, process)
        yield functions


def _start():
    if os.environ["KERAS_BACKEND"] == "tensorflow":
        _cli.import_tensorflow()


def _make(maker, *args):
    global _made
    _made = maker(*args)


def _call(*args):
    return _made(*args)


def _result(process, *args):
    return process.submit(_call, *args).result()


def interleaved_medians(functions, repeats):
    """Times functions in turn, so that a slow minute affects all of them.

    Returns a dict from the names of the functions to median seconds.
    """
    seconds = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def print_table(rows):
    """Prints dicts as a Markdown table, each as soon as it is there."""
    for number, row in enumerate(rows):
        if number == 0:
            print(f"| {' | '.join(row)} |\n|{' --- |' * len(row)}")
        cells = [
            f"{value:.4g}" if isinstance(value, float) else str(value)
            for value in row.values()
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def mixed_problems(count):
    """Generates questions and answers of all modules and lengths, shuffled."""
    from tpt_keras.data_generators.mathematics.archive import MODULES
    from tpt_keras.data_generators.mathematics.shards import generate_shard

    per_module = max(5, -(-count // len(MODULES)))
    problems = []
    for module in MODULES:
        shard = generate_shard(module, "interpolate", 0, 0, count=per_module)
        problems += shard.problems
    random.Random(0).shuffle(problems)
    questions, answers = zip(*problems[:count])
    return list(questions), list(answers)


def mixed_batches(num_batches, batch_size):
    """Returns the `ProblemBatches` of an epoch of `mixed_problems`."""
    from tpt_keras.data_generators.batches import ProblemBatches
    from tpt_keras.data_generators.examples import ArrayExamples
    from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

    tokenizer = CharacterTokenizer()
    problems = zip(*mixed_problems(num_batches * batch_size))
    examples = ArrayExamples.from_texts(problems, tokenizer.vocabulary)
    return ProblemBatches(examples, tokenizer, batch_size)


def processor():
    """Names the processor and counts its cores."""
    info = pathlib.Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    name = re.search(r"model name\s*: (.*)", text)
    return f"{name[1] if name else 'unknown'}, {available_cores()} cores"

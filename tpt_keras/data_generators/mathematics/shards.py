"""Problems drawn from the generator, one shard at a time.

A shard's problems depend on the seed, the module, the split and the shard's
number alone, not on the process or on what it drew before.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import signal
import threading
import time
import typing

import numpy as np

from tpt_keras.data_generators.mathematics.modules import problem_functions
from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.tokenizers.character_tokenizer import MAX_ANSWER_LENGTH
from tpt_keras.tokenizers.character_tokenizer import MAX_QUESTION_LENGTH

# Small, because the slowest modules draw one or two problems a second.
PROBLEMS_PER_SHARD = 100
# A module that raises so often without a problem between draws none at all.
_MOST_RAISED_IN_A_ROW = 100


class Shard(typing.NamedTuple):
    """Problems that were drawn together.

    Attributes:
        problems: List of pairs of question and answer.
        raised: Number of errors that the generator raised instead.
    """

    problems: list
    raised: int = 0


def draw_shard(module, split, shard, seed, count=PROBLEMS_PER_SHARD):
    """Draws one shard of problems.

    A problem longer than the dataset allows is drawn again, as in DeepMind's
    own script. So is a problem for which the generator raises an error, which
    most modules do about once in some million problems.

    Args:
        module: Name of a module of the split.
        split: One of `modules.SPLITS`.
        shard: Number of the shard.
        seed: Seed of the dataset.
        count: Number of problems.

    Returns:
        A `Shard`.

    Raises:
        UsageError: If the module raises nothing but errors.
    """
    draw = problem_functions(split)[module]
    _seed_everything(f"{seed}/{module}/{split}/{shard}")
    problems = []
    raised = in_a_row = 0
    while len(problems) < count:
        try:
            problem = draw()
            question, answer = str(problem.question), str(problem.answer)
        except MemoryError:
            raise  # other errors depend on the seed alone
        except Exception as error:
            raised += 1
            in_a_row += 1
            if in_a_row == _MOST_RAISED_IN_A_ROW:
                message = f"{type(error).__name__}: {error}".split("\n")[0]
                raise UsageError(
                    f"The generator of module {module} ({split}) raised an "
                    f"error {in_a_row} times in a row, at last {message!r}. "
                    "Leave the module out, or take another seed."
                ) from error
            continue
        in_a_row = 0
        if (
            len(question) <= MAX_QUESTION_LENGTH
            and len(answer) <= MAX_ANSWER_LENGTH
        ):
            problems.append((question, answer))
    return Shard(problems, raised)


def _seed_everything(text):
    """Seeds the three generators that modules draw from."""
    from sympy.core import random as sympy_random

    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    random.seed(seed)
    np.random.seed(seed)
    sympy_random.seed(seed)


def write_shard(path, module, split, shard, seed):
    """Draws a shard into a file, which is written atomically."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = draw_shard(module, split, shard, seed)
    # Thousands of them: waiting for the disk would take longer than drawing.
    with whole_file(path, sync=False) as partial:
        partial.write_text(json.dumps(drawn._asdict()))


def read_shard(path):
    """Reads a `Shard`; raises a `ValueError` if its file is damaged."""
    try:
        return Shard(**json.loads(path.read_bytes()))
    except TypeError as error:
        raise ValueError(f"{path} is no shard") from error


@contextlib.contextmanager
def drawing_processes(num_workers):
    """Starts processes that draw shards.

    Args:
        num_workers: Number of processes.

    Yields:
        The function that `generate_modules` draws with.
    """
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(
            concurrent.futures.ProcessPoolExecutor(
                num_workers,
                # Spawned, because TensorFlow does not survive a fork.
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_end_with_parent,
            )
        )
        stack.callback(pool.shutdown, cancel_futures=True)
        running = {}

        def draw(drawings):
            with _sigint_blocked():
                for name, drawing in drawings.items():
                    running[pool.submit(_timed_write, *drawing)] = name
            done, _ = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            )
            return {running.pop(future): future.result() for future in done}

        yield draw


@contextlib.contextmanager
def _sigint_blocked():
    """Lets processes that start inherit a blocked SIGINT.

    A terminal sends it to all of them, and each would print a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _timed_write(*drawing):
    start = time.monotonic()
    write_shard(*drawing)
    return time.monotonic() - start


def _end_with_parent():
    """Ends this process when its parent is killed."""

    def watch():
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

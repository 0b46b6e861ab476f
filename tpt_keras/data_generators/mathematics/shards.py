"""Problems of DeepMind's generator, one shard at a time.

A shard's problems depend on the seed, the module, the split and the shard's
number alone, not on the process or on what it generated before.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import logging
import random
import time
import typing

import numpy as np

from tpt_keras.data_generators.mathematics.deepmind import problem_functions
from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.processes import end_with_parent
from tpt_keras.processes import named_when_killed
from tpt_keras.processes import sigint_blocked
from tpt_keras.processes import spawned_pool
from tpt_keras.tokenizers.character_tokenizer import MAX_ANSWER_LENGTH
from tpt_keras.tokenizers.character_tokenizer import MAX_QUESTION_LENGTH

# Small, because the slowest modules generate a few problems a second.
PROBLEMS_PER_SHARD = 100
# A module that raises so often without a problem between generates none at all.
_MOST_RAISED_IN_A_ROW = 100
_MOST_EXCLUDED_IN_A_ROW = 10_000
_SECONDS_PER_LINE = 10

logger = logging.getLogger(__name__)


class Shard(typing.NamedTuple):
    """Pairs of question and answer that were generated together.

    `raised` counts the errors that the generator raised instead of problems.
    """

    problems: list
    raised: int = 0


def generate_shard(
    module, split, shard, seed, count=PROBLEMS_PER_SHARD, excluded=frozenset()
):
    """Generates one shard of problems.

    A problem longer than the dataset allows is replaced by the next one, as in
    DeepMind's own script. So is a problem for which the generator raises an
    error, which most modules do about once in some million problems, and one
    that is excluded.

    Args:
        module: Name of a module of the split, such as
            `"numbers__place_value_big"` of `"extrapolate"`.
        split: One of `SPLITS`.
        shard: Number of the shard.
        seed: Seed of the dataset.
        count: Number of problems.
        excluded: Set of the `question_key`s of problems that are not taken.

    Returns:
        A `Shard`.

    Raises:
        UsageError: If the module generates nothing but errors, or nothing but
            excluded problems.
    """
    make_problem = problem_functions(split)[module]
    _seed_everything(f"{seed}/{module}/{split}/{shard}")
    problems = []
    raised = in_a_row = excluded_in_a_row = 0
    while len(problems) < count:
        try:
            problem = make_problem()
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
            len(question) > MAX_QUESTION_LENGTH
            or len(answer) > MAX_ANSWER_LENGTH
        ):
            continue
        if excluded and question_key(question) in excluded:
            excluded_in_a_row += 1
            if excluded_in_a_row == _MOST_EXCLUDED_IN_A_ROW:
                raise UsageError(
                    f"The generator of module {module} ({split}) made "
                    f"{excluded_in_a_row} problems in a row that are held out "
                    "for evaluation. Leave the module out, or hold out fewer."
                )
            continue
        excluded_in_a_row = 0
        problems.append((question, answer))
    return Shard(problems, raised)


def question_key(question):
    """Hashes a question to eight bytes: millions have to fit in memory."""
    return hashlib.blake2b(question.encode(), digest_size=8).digest()


def _seed_everything(text):
    """Seeds the three generators that modules use."""
    from sympy.core import random as sympy_random

    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    random.seed(seed)
    np.random.seed(seed)
    sympy_random.seed(seed)


def write_shard(path, *described):
    """Generates a shard, with the arguments of `generate_shard`, as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shard = generate_shard(*described)
    # Thousands of them: waiting for the disk would take longer than all else.
    with whole_file(path, sync=False) as partial:
        partial.write_text(json.dumps(shard._asdict()))


def read_shard(path):
    """Reads a `Shard`; returns `None` if its file is missing or damaged."""
    try:
        return Shard(**json.loads(path.read_bytes()))
    except (FileNotFoundError, TypeError, ValueError):
        return None


@contextlib.contextmanager
def generator_processes(num_workers):
    """Starts processes and yields a function that makes shards with them."""
    pool = spawned_pool(num_workers, end_with_parent)

    def generate(shards):
        logged = time.monotonic()
        with sigint_blocked():
            futures = [pool.submit(write_shard, *each) for each in shards]
        finished = concurrent.futures.as_completed(futures)
        for count, future in enumerate(finished, 1):
            future.result()
            if time.monotonic() >= logged + _SECONDS_PER_LINE:
                logged = time.monotonic()
                modules = sorted({path.parent.name for path, *_ in shards})
                logger.info(
                    "%s: %s of %s problems generated.",
                    ", ".join(modules[:1] + ["..."] * (len(modules) > 1)),
                    f"{count * PROBLEMS_PER_SHARD:,}",
                    f"{len(shards) * PROBLEMS_PER_SHARD:,}",
                )

    with pool, contextlib.ExitStack() as stack:
        stack.callback(pool.shutdown, cancel_futures=True)
        with named_when_killed("num_workers"):
            yield generate

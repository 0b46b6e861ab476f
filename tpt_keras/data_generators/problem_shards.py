"""Problems drawn from the generator, a shard at a time.

A shard's problems depend on the seed, the module, the split and the shard's
number, and on nothing else: not on the process, nor on what it drew before.
"""

import hashlib
import json
import pathlib
import random
import typing

import numpy as np

from tpt_keras.data_generators.mathematics_modules import problem_functions
from tpt_keras.errors import UsageError
from tpt_keras.files import whole_file
from tpt_keras.tokenizers.vocabulary import MAX_ANSWER_LENGTH
from tpt_keras.tokenizers.vocabulary import MAX_QUESTION_LENGTH

# Small, for the slowest modules draw one or two problems a second.
PROBLEMS_PER_SHARD = 100
# A module that raises so often without a problem between draws none at all.
_MOST_RAISED_IN_A_ROW = 100


class Shard(typing.NamedTuple):
    """Problems that were drawn together.

    Attributes:
        problems: List of pairs of question and answer.
        raised: How often the generator raised an error instead.
    """

    problems: list
    raised: int = 0


def draw_shard(module, split, shard, seed, count=PROBLEMS_PER_SHARD):
    """Draws one shard of problems.

    A problem longer than the dataset allows is drawn again, as DeepMind's own
    script does, and so is one for which the generator raises an error: most
    modules do so about once in some million problems.

    Args:
        module: Name of a module of the split.
        split: One of `mathematics_modules.SPLITS`.
        shard: Number of the shard.
        seed: Seed of the dataset.
        count: Number of problems.

    Returns:
        A `Shard`.

    Raises:
        UsageError: If the module does nothing but raise errors.
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
            raise  # of this process, where other errors are of the seed
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
    """Draws a shard into a file that is whole or not there.

    Args:
        path: The file.
        module: See `draw_shard`.
        split: See `draw_shard`.
        shard: See `draw_shard`.
        seed: See `draw_shard`.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = draw_shard(module, split, shard, seed)
    # Thousands of them: waiting for the disk would take longer than drawing.
    with whole_file(path, sync=False) as partial:
        partial.write_text(json.dumps(drawn._asdict()))


def read_shard(path):
    """Reads what `write_shard` wrote, now or in version 0.2.0.

    Args:
        path: The file.

    Returns:
        A `Shard`.

    Raises:
        ValueError: If the file is damaged.
    """
    content = json.loads(path.read_bytes())
    if isinstance(content, list):  # as 0.2.0 wrote it
        return Shard(content)
    try:
        return Shard(**content)
    except TypeError as error:
        raise ValueError(f"{path} is no shard") from error

"""Problems drawn from the generator, a shard at a time.

A shard's problems depend on the seed, the module, the split and the shard's
number, and on nothing else: not on the process, nor on what it drew before.
"""

import hashlib
import json
import pathlib
import random

import numpy as np

from tpt_keras.data_generators.mathematics_modules import problem_functions
from tpt_keras.data_generators.vocabulary import MAX_ANSWER_LENGTH
from tpt_keras.data_generators.vocabulary import MAX_QUESTION_LENGTH
from tpt_keras.files import whole_file

# Small, for the slowest modules draw one or two problems a second.
PROBLEMS_PER_SHARD = 100


def draw_problems(module, split, shard, seed, count=PROBLEMS_PER_SHARD):
    """Draws one shard of problems.

    A problem longer than the dataset allows is drawn again, as DeepMind's own
    script does.

    Args:
        module: Name of a module of the split.
        split: One of `mathematics_modules.SPLITS`.
        shard: Number of the shard.
        seed: Seed of the dataset.
        count: Number of problems.

    Returns:
        List of pairs of question and answer.
    """
    draw = problem_functions(split)[module]
    _seed_everything(f"{seed}/{module}/{split}/{shard}")
    problems = []
    while len(problems) < count:
        problem = draw()
        question, answer = str(problem.question), str(problem.answer)
        if (
            len(question) <= MAX_QUESTION_LENGTH
            and len(answer) <= MAX_ANSWER_LENGTH
        ):
            problems.append((question, answer))
    return problems


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
        module: See `draw_problems`.
        split: See `draw_problems`.
        shard: See `draw_problems`.
        seed: See `draw_problems`.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(
            json.dumps(draw_problems(module, split, shard, seed))
        )

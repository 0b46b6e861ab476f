"""Real problems to time things with."""

import random


def middling_problems(count):
    """Problems of all modules, of middling and similar lengths.

    Args:
        count: How many.

    Returns:
        List of questions and list of answers.
    """
    # Several times as many as are wanted, to take the middle of.
    problems = _draw("train_medium", max(6, count // 20))
    problems.sort(key=lambda problem: len(problem[0]))
    middle = (len(problems) - count) // 2
    questions, answers = zip(*problems[middle : middle + count])
    return list(questions), list(answers)


def mixed_problems(count):
    """Problems of all modules, in random order, as they may be asked.

    Args:
        count: How many.

    Returns:
        List of questions and list of answers.
    """
    from tpt_keras.data_generators.mathematics.modules import MODULES

    problems = _draw("interpolate", max(5, -(-count // len(MODULES))))
    random.Random(0).shuffle(problems)
    questions, answers = zip(*problems[:count])
    return list(questions), list(answers)


def _draw(split, per_module):
    from tpt_keras.data_generators.mathematics.modules import MODULES
    from tpt_keras.data_generators.mathematics.shards import draw_shard

    return [
        problem
        for module in MODULES
        for problem in draw_shard(
            module, split, 0, 0, count=per_module
        ).problems
    ]

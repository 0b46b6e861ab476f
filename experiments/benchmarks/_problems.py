"""Real problems to time things with."""


def middling_problems(count):
    """Problems of all modules, of middling and similar lengths.

    Args:
        count: How many.

    Returns:
        List of questions and list of answers.
    """
    from tpt_keras.data_generators.mathematics_modules import MODULES
    from tpt_keras.data_generators.problem_shards import draw_shard

    # Several times as many as are wanted, to take the middle of.
    per_module = max(6, count // 20)
    problems = [
        problem
        for module in MODULES
        for problem in draw_shard(
            module, "train_medium", 0, 0, count=per_module
        ).problems
    ]
    problems.sort(key=lambda problem: len(problem[0]))
    middle = (len(problems) - count) // 2
    questions, answers = zip(*problems[middle : middle + count])
    return list(questions), list(answers)

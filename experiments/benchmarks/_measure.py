"""Shared parts of the benchmarks: problems, models, timing.

Keras is imported inside functions: a benchmark parses its flags first and then
imports TensorFlow quietly.
"""

import random
import statistics
import time

CLIPNORM = 0.1


def interleaved_medians(functions, repeats, warmup=2, untimed=0):
    """Times functions in turn, so that a slow minute affects all of them.

    Args:
        functions: Dict of name to function without arguments, which must
            return when the work is done.
        repeats: Timed calls of each.
        warmup: Untimed calls of each at the start.
        untimed: Untimed calls before each timed one, for functions that evict
            each other's data from a cache.

    Returns:
        Dict of name to median seconds.
    """
    seconds = {name: [] for name in functions}
    for turn in range(warmup + repeats):
        for name, function in functions.items():
            for _ in range(untimed):
                function()
            start = time.perf_counter()
            function()
            if turn >= warmup:
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


def middling_problems(count):
    """Draws questions and answers of all modules, of middling lengths."""
    problems = _draw("train_medium", max(6, count // 20))
    problems.sort(key=lambda problem: len(problem[0]))
    middle = (len(problems) - count) // 2
    questions, answers = zip(*problems[middle : middle + count])
    return list(questions), list(answers)


def mixed_problems(count):
    """Draws questions and answers of all modules and lengths, shuffled."""
    from tpt_keras.data_generators.mathematics.task import MODULES

    problems = _draw("interpolate", max(5, -(-count // len(MODULES))))
    random.Random(0).shuffle(problems)
    questions, answers = zip(*problems[:count])
    return list(questions), list(answers)


def _draw(split, per_module):
    from tpt_keras.data_generators.mathematics.shards import draw_shard
    from tpt_keras.data_generators.mathematics.task import MODULES

    return [
        problem
        for module in MODULES
        for problem in draw_shard(
            module, split, 0, 0, count=per_module
        ).problems
    ]


def real_batch(batch_size):
    """Returns a training batch of `middling_problems`."""
    from tpt_keras.tokenizers.character_tokenizer import CharacterTokenizer

    questions, answers = middling_problems(batch_size)
    tokenizer = CharacterTokenizer()
    target = tokenizer.encode_questions(answers)
    return (
        {
            "encoder_token_ids": tokenizer.encode_questions(questions),
            "decoder_token_ids": target[:, :-1],
        },
        target[:, 1:],
    )


def preset_trainer(preset, xla):
    """Builds a preset with random weights, ready to be trained."""
    from tpt_keras.models import SequenceToSequence
    from tpt_keras.training.trainer import Trainer

    model = SequenceToSequence.from_preset(preset)
    trainer = Trainer(model, global_clipnorm=CLIPNORM)
    trainer.compile(adam(), jit_compile=xla)
    return trainer


def adam(**kwargs):
    """Returns the paper's optimizer."""
    import keras

    return keras.optimizers.Adam(1e-4, beta_2=0.995, epsilon=1e-8, **kwargs)

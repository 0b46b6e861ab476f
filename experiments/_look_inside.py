"""Shared parts of the commands that analyse a model."""

import sys

from absl import flags

from tpt_keras.errors import UsageError

from . import _flags
from ._flags import Problems

# The flags count as those of the module that calls these functions.
flags.disclaim_key_flags()


def define_flags(output_dir, count=None):
    """Defines the flags of every analysis; with `count` those of problems."""
    _flags.define_model_dir()
    flags.DEFINE_string("output_dir", output_dir, "Folder to write.")
    if count:
        _flags.define(Problems)
        flags.DEFINE_integer(
            "count", count, "Problems of each module, at most.", lower_bound=1
        )
        flags.DEFINE_integer("seed", 0, "Seed of everything that is random.")


def define_head():
    """Defines the flags that choose one head."""
    choices = ["encoder", "decoder", "cross"]
    flags.DEFINE_enum("attention", "encoder", choices, "The attention.")
    flags.DEFINE_integer(
        "layer", None, "Its layer, from 1. Default: the last.", lower_bound=1
    )
    flags.DEFINE_integer("head", 1, "Its head, from 1.", lower_bound=1)


def layer_and_head(model):
    """Returns the indices of --layer and --head."""
    indices = []
    for name in ("layer", "head"):
        count = getattr(model.config, f"num_{name}s")
        number = flags.FLAGS[name].value or count
        if number > count:
            raise UsageError(
                f"The model has no {name} {number}. Give a `{name}` from 1 to "
                f"{count}.",
                field=name,
            )
        indices.append(number - 1)
    return indices


def load_transformer():
    """Loads the model of --model_dir, which must be a Transformer."""
    from tpt_keras.models import Transformer
    from tpt_keras.models.stored import load_model

    return load_model(flags.FLAGS.model_dir, classes=(Transformer,))


def load_model_and_problems():
    """Returns a model, `Problems`, and the texts of those that it can read."""
    problems = Problems.of(flags.FLAGS.model_dir)
    by_module = problems.read(flags.FLAGS.count)
    model = load_transformer()
    pairs = [pair for texts in by_module.values() for pair in zip(*texts)]
    columns = map(list, zip(*readable(model, pairs)))
    return model, problems, *columns


def readable(model, problems):
    """Returns the problems whose question, the first item, a model can read.

    It names the other questions. If there are only such, it raises a
    `UsageError`.
    """
    from tpt_keras.answer import OK
    from tpt_keras.answer import Answer
    from tpt_keras.answer import unanswered

    questions = [question for question, *_ in problems]
    limit = model.config.max_question_length
    found = [
        Answer("", status=model.tokenizer.question_status(question, limit))
        for question in questions
    ]
    faults = unanswered(questions, found, model.config.vocabulary, limit)
    kept = [
        problem
        for problem, answer in zip(problems, found)
        if answer.status == OK
    ]
    if not kept:
        raise UsageError(f"The model cannot read any question: {faults}")
    if faults:
        print(f"Left out: {faults}", file=sys.stderr)
    return kept

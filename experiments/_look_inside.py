"""Shared parts of the commands that analyse a model."""

import itertools
import json
import sys

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import require

from . import _flags
from ._problems import Problems

# The commands that import this module have the flags, in their help too.
flags.disclaim_key_flags()

_MOST_NAMED = 20


def define_problem_flags():
    """Defines the flags of the problems that a command analyses."""
    _flags.define(Problems)
    flags.register_validator("modules", bool, "name one module or more")


def require_analysis(*packages):
    """Raises an error if a package of the extra `analysis` is missing."""
    for package in packages:
        require(package, "analysis")


def read_problems():
    """Returns the questions and the answers of --modules, two lists."""
    problems = Problems(**_flags.values(Problems))
    by_module = problems.read(flags.FLAGS.count).values()
    return [list(itertools.chain(*texts)) for texts in zip(*by_module)]


def load_transformer():
    """Loads the model of --model_dir, which must be a Transformer."""
    from tpt_keras.models.load_model import load_model
    from tpt_keras.models.transformer import Transformer

    return load_model(flags.FLAGS.model_dir, classes=(Transformer,))


def readable(model, questions, *others):
    """Leaves out the questions that a model cannot read, and names them.

    Args:
        model: A `SequenceToSequence`.
        questions: List of strings.
        *others: Lists of as many values, which are left out too.

    Returns:
        List of the remaining questions. With `others`, a list of such lists.

    Raises:
        UsageError: If no question remains.
    """
    from tpt_keras.answer import OK
    from tpt_keras.answer import explain

    tokenizer, limit = model.tokenizer, model.config.max_question_length
    statuses = [tokenizer.question_status(text, limit) for text in questions]
    left_out = [
        f"{text[:40]!r} {explain(text, status, tokenizer.vocabulary, limit)}"
        for text, status in zip(questions, statuses)
        if status != OK
    ]
    named = "; ".join(left_out[:_MOST_NAMED])
    if len(left_out) > _MOST_NAMED:
        named += f"; and {len(left_out) - _MOST_NAMED} more"
    if len(left_out) == len(questions):
        raise UsageError(f"The model cannot read any question: {named}.")
    if left_out:
        print(
            f"Left out {len(left_out)} of {len(questions)} questions that the "
            f"model cannot read: {named}.",
            file=sys.stderr,
        )
    kept = [
        list(itertools.compress(each, (status == OK for status in statuses)))
        for each in (questions, *others)
    ]
    return kept if others else kept[0]


def write_json(path, content):
    """Writes a JSON file, and its folder where it is missing."""
    from tpt_keras.files import whole_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(json.dumps(content, indent=2))

"""Shared parts of the commands that analyse a model."""

import itertools
import json
import sys

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import require

from . import _flags
from ._problems import Problems

_MOST_NAMED = 20


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


def framed_lengths(questions):
    """Returns the questions' lengths with their start and end symbols."""
    return [len(question) + 2 for question in questions]


def layer_and_head(model):
    """Returns the indices of --layer, by default the last, and --head."""
    config, indices = model.config, []
    for name, count in (
        ("layer", config.num_layers),
        ("head", config.num_heads),
    ):
        number = flags.FLAGS[name].value
        number = count if number is None else number
        if not 1 <= number <= count:
            raise UsageError(
                f"The model has no {name} {number}. --{name} must be from 1 to "
                f"{count}."
            )
        indices.append(number - 1)
    return indices


def write_json(path, content):
    """Writes a JSON file, and its folder where it is missing."""
    from tpt_keras.files import whole_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        partial.write_text(json.dumps(content, indent=2))

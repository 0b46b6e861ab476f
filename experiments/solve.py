r"""Asks a model.

An exported one, which needs TensorFlow and no model code of this project:

    python -m experiments.solve --saved_model=saved_models/demo \
        --question="What is the tens digit of 31859?"

or one that was not exported:

    python -m experiments.solve \
        --model_dir=saved_models/tp_transformer_mathematics \
        --question="Sort 3, -2, 15, 0."

Prints a line for every question. It is empty for one that has no answer, which
is named at the end, on standard error.
"""

import dataclasses
import os

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli
from ._answers import print_answers

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "saved_model", None, "A SavedModel, or the folder of its versions."
)
flags.DEFINE_string("model_dir", None, "A model's folder, in its place.")
flags.DEFINE_multi_string("question", [], "A question; may be given again.")


def main():
    if bool(FLAGS.saved_model) == bool(FLAGS.model_dir) or not FLAGS.question:
        raise UsageError(
            "--question is needed, and one of --saved_model and --model_dir."
        )
    if FLAGS.model_dir:
        answers, config = ask_model(FLAGS.model_dir, FLAGS.question)
    else:
        from tpt_keras.serving import SavedModel

        model = SavedModel(FLAGS.saved_model)
        # As bytes, for what was typed may be no valid text.
        answers = model.answer(list(map(os.fsencode, FLAGS.question)))
        config = model.config
    print_answers(
        FLAGS.question,
        answers,
        lambda question, status: _explain(question, status, config),
    )


def ask_model(model_dir, questions):
    """Asks a model that was not exported, with the statuses of one that was.

    Args:
        model_dir: The model's folder.
        questions: List of strings.

    Returns:
        List of `Answer`s, and the dict of the model's hyperparameters.
    """
    from tpt_keras.models.load_model import load_model
    from tpt_keras.serving import Answer

    model = load_model(model_dir)
    statuses = [_status(question, model) for question in questions]
    found = iter(
        model.solve(
            [q for q, status in zip(questions, statuses) if status == "OK"]
        )
    )
    answers = [
        Answer(next(found) if status == "OK" else "", None, status)
        for status in statuses
    ]
    return answers, dataclasses.asdict(model.config)


def _status(question, model):
    if not question:
        return "EMPTY"
    try:
        question.encode()
    except UnicodeEncodeError:
        return "INVALID_UTF8"
    if len(question) > model.config.max_question_length:
        return "TOO_LONG"
    if not set(question) <= set(model.config.vocabulary):
        return "UNKNOWN_CHARACTER"
    return "OK"


def _explain(question, status, config):
    """What is wrong with a question, by the model's own limits."""
    if status == "UNKNOWN_CHARACTER" and "vocabulary" in config:
        known = [s for s in map(str, config["vocabulary"]) if len(s) == 1]
        culprit = next((c for c in question if c not in known), "")
        return (
            f"has the character {culprit!r}, which is not in the model's "
            f"vocabulary {''.join(known)!r}"
        )
    if status == "TOO_LONG" and "max_question_length" in config:
        return (
            f"has {len(question)} characters; shorten it to "
            f"{config['max_question_length']}"
        )
    return None


if __name__ == "__main__":
    _cli.run(main)

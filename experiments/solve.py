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

import os

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli
from . import _config_flags
from ._answers import print_answers
from ._asked_model import AskedModel

FLAGS = flags.FLAGS

_config_flags.define(AskedModel)
flags.DEFINE_multi_string("question", [], "A question; may be given again.")


def main():
    if not FLAGS.question:
        raise UsageError("--question is needed, one or more of them.")
    model = AskedModel(**_config_flags.values(AskedModel)).load()
    print_answers(
        FLAGS.question,
        # As bytes, for what was typed may be no valid text.
        model.answer(list(map(os.fsencode, FLAGS.question))),
        lambda question, status: _explain(question, status, model.config),
    )


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

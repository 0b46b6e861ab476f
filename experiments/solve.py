r"""Answers questions with a model.

With an exported one, which needs TensorFlow and no model code of this project:

    python -m experiments.solve --saved_model=saved_models/demo \
        --question="What is the tens digit of 31859?"

with a trained model's folder (--model_dir=models/demo), or with the model that
ships with the package:

    python -m experiments.solve --preset=tp_transformer_mathematics \
        --question="Sort 3, -2, 15, 0."

Prints a line for every question. The line of a question without an answer is
empty, and standard error says why at the end.
"""

import os

from absl import flags

from . import _cli
from . import _flags
from ._answers import print_answers
from ._model_flags import ModelFlags

FLAGS = flags.FLAGS

_flags.define(ModelFlags)
flags.DEFINE_multi_string("question", [], "A question; may be given again.")


def check():
    _cli.needed("question")
    ModelFlags(**_flags.values(ModelFlags))


def main():
    model, config = ModelFlags(**_flags.values(ModelFlags)).load()
    # As bytes: the shell may have passed invalid text.
    answers = model.answer(list(map(os.fsencode, FLAGS.question)))
    print_answers(FLAGS.question, answers, config)


if __name__ == "__main__":
    _cli.run(main, check)

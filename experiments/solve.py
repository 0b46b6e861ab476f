r"""Answers questions with a model.

With an exported one, which needs TensorFlow and no model code of this project:

    python -m experiments.solve --saved_model=saved_models/demo \
        --question="What is the tens digit of 31859?"

with ONNX graphs (--onnx_model=onnx/demo), a model on TF Serving
(--server=localhost:8500), a trained model's folder (--model_dir=models/demo),
or a trained preset, which may be hf://user/name:

    python -m experiments.solve --preset=tp_transformer_mathematics \
        --question="Sort 3, -2, 15, 0."

Prints a line for every question, unless none has an answer. The line of a
question without an answer is empty, and standard error says why at the end.
"""

import os

from absl import flags

from tpt_keras.answer import OK
from tpt_keras.answer import unanswered
from tpt_keras.errors import UsageError

from . import _cli
from . import _flags
from ._flags import ModelFlags

FLAGS = flags.FLAGS

_flags.define(ModelFlags)
flags.DEFINE_multi_string(
    "question", None, "A question; may be given again.", required=True
)


def check():
    ModelFlags(**_flags.values(ModelFlags))


def main():
    model, config = ModelFlags(**_flags.values(ModelFlags)).load()
    # As bytes: the shell may have passed invalid text.
    answers = model.answer(list(map(os.fsencode, FLAGS.question)))
    if any(answer.status == OK for answer in answers):
        print("\n".join(answer.text for answer in answers))
    faults = unanswered(
        FLAGS.question,
        answers,
        config.get("vocabulary", ()),
        config.get("max_question_length"),
    )
    if faults:
        raise UsageError(faults)


if __name__ == "__main__":
    _cli.run(main, check)

r"""Answers questions with a model.

    tpt_keras solve --question="Sort 3, -2, 15, 0." --question="Divide 90 by 6."

The model is the trained solver, a folder or a file (--model=models/demo), a
SavedModel (--saved_model=saved_models/demo), ONNX graphs
(--onnx_model=onnx/demo), or on TF Serving (--server=localhost:8501). Without
--question it reads a question from each line of --questions_file, or of
standard input:

    tpt_keras solve --model=models/demo < questions.txt

Prints a line for every question, unless none has an answer. The line of a
question without an answer is empty, and standard error says why at the end.
"""

import os

from absl import flags

from tpt_keras.answer import OK
from tpt_keras.errors import UsageError

from . import _flags
from ._flags import ModelFlags

FLAGS = flags.FLAGS
NEEDS_BACKEND = False

_flags.define(ModelFlags)
flags.DEFINE_multi_string("question", [], "A question")
flags.DEFINE_string(
    "questions_file", None, "Text file with a question on each line."
)


def check():
    ModelFlags(**_flags.values(ModelFlags))
    if FLAGS.question and FLAGS.questions_file:
        raise UsageError(
            "Give `question` or `questions_file`, not both.", field="question"
        )


def main():
    questions = FLAGS.question or read_questions(FLAGS.questions_file)
    if not questions:
        raise UsageError(
            "There is no question. Give a `question`, a `questions_file`, or "
            "lines on standard input.",
            field="question",
        )
    model = ModelFlags(**_flags.values(ModelFlags)).load()
    # As bytes: the shell may have passed invalid text.
    answers = model.answer(list(map(os.fsencode, questions)))
    if any(answer.status == OK for answer in answers):
        print("\n".join(answer.text for answer in answers))
    faults = model.unanswered(questions, answers)
    if faults:
        raise UsageError(faults)


def read_questions(path):
    """Returns the lines of a file, or those that standard input has."""
    if not path and os.isatty(0):
        return []
    encoding = {"encoding": "utf-8-sig", "errors": "surrogateescape"}
    with open(path or 0, closefd=bool(path), **encoding) as lines:
        return [line.rstrip("\n") for line in lines]

r"""Lets a model answer unseen problems.

    tpt_keras quiz --saved_model=saved_models/demo \
        --modules=numbers__place_value --data_dir=data

The model may be any that `solve` takes; without one it is the trained solver.
"""

from absl import flags

from . import _flags
from ._flags import ModelFlags
from ._flags import Problems

FLAGS = flags.FLAGS
NEEDS_BACKEND = False

_flags.define(ModelFlags)
_flags.define(Problems)
flags.DEFINE_integer("count", 10, "Problems of each module.", lower_bound=1)


def check():
    ModelFlags(**_flags.values(ModelFlags))


def main():
    model = ModelFlags(**_flags.values(ModelFlags)).load()
    problems = Problems.of(FLAGS.model)
    texts = problems.read(FLAGS.count)
    num_right = num_asked = 0
    for questions, targets in texts.values():
        answers = model.answer(questions)
        for question, found, target in zip(questions, answers, targets):
            is_right = found.text == target
            mark = "right" if is_right else "WRONG"
            print(f"{question}")
            print(f"    answer: {found.text:20} target: {target:20} {mark}")
            num_right += is_right
        num_asked += len(questions)
    print(f"{num_right} of {num_asked} answers right")

r"""Lets a model answer unseen problems.

    python -m experiments.quiz --saved_model=saved_models/demo \
        --modules=numbers__place_value --data_dir=data

Needs the SavedModel and the data, nothing of this project's model code; or,
in its place, a model's folder (--model_dir).
"""

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli
from . import _config_flags
from ._problems import Problems

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "saved_model", None, "A SavedModel, or the folder of its versions."
)
flags.DEFINE_string("model_dir", None, "A model's folder, in its place.")
_config_flags.define(Problems)
flags.DEFINE_integer("count", 10, "Problems of each module.")


def main():
    if bool(FLAGS.saved_model) == bool(FLAGS.model_dir) or not FLAGS.modules:
        raise UsageError(
            "--modules is needed, and one of --saved_model and --model_dir."
        )
    problems = Problems(**_config_flags.values(Problems)).read(FLAGS.count)
    solve = solver()
    num_right = num_asked = 0
    for questions, targets in problems.values():
        for question, answer, target in zip(
            questions, solve(questions), targets
        ):
            mark = "right" if answer == target else "WRONG"
            print(f"{question}")
            print(f"    answer: {answer:20} target: {target:20} {mark}")
            num_right += answer == target
        num_asked += len(questions)
    print(f"{num_right} of {num_asked} answers right")


def solver():
    """Function from a list of questions to that of their answers."""
    if FLAGS.model_dir:
        from tpt_keras.models.load_model import load_model

        return load_model(FLAGS.model_dir).solve
    from tpt_keras.serving import SavedModel

    model = SavedModel(FLAGS.saved_model)
    return lambda questions: [a.answer for a in model.answer(questions)]


if __name__ == "__main__":
    _cli.run(main)

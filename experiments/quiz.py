r"""Lets an exported model answer unseen problems.

    python -m experiments.quiz --saved_model=saved_models/demo \
        --modules=numbers__place_value --data_dir=data

Needs the SavedModel and the data, nothing of this project's model code.
"""

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "saved_model", None, "A SavedModel, or the folder of its versions."
)
flags.DEFINE_list(
    "modules", [], "Names of modules, patterns (numbers__*), or all."
)
flags.DEFINE_string("data_dir", "data", "Folder that prepare_data filled.")
flags.DEFINE_string("split", "interpolate", "Name of the split.")
flags.DEFINE_integer("count", 10, "Problems of each module.")


def main():
    if not FLAGS.saved_model or not FLAGS.modules:
        raise UsageError("--saved_model and --modules are needed.")
    if FLAGS.count <= 0:
        raise UsageError("--count must be positive.")
    import numpy as np

    from tpt_keras.data_generators.mathematics_modules import select_modules
    from tpt_keras.data_generators.prepared_data import problem_sources
    from tpt_keras.serving import SavedModel

    modules = select_modules(FLAGS.modules)
    sources = problem_sources(FLAGS.data_dir, modules, [FLAGS.split])
    if not any(map(len, sources.values())):
        raise UsageError(
            f"None of the modules {', '.join(modules)} has problems of "
            f"--split={FLAGS.split!r}."
        )
    model = SavedModel(FLAGS.saved_model)
    for source in filter(len, sources.values()):
        count = min(FLAGS.count, len(source))
        questions, targets = source.read(np.arange(count))
        for question, given, target in zip(
            questions, model.answer(list(questions)), targets
        ):
            target = target.decode()
            mark = "right" if given.answer == target else "WRONG"
            print(f"{question.decode()}")
            print(f"    answer: {given.answer:20} target: {target:20} {mark}")


if __name__ == "__main__":
    _cli.run(main)

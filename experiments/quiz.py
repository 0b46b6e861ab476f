"""Lets an exported model answer problems that it has never seen.

    python -m experiments.quiz --saved_model=saved_models/demo \
        --modules=numbers__place_value --data_dir=data

Needs TensorFlow and TensorFlow Datasets, nothing of this project's model code.
"""

from absl import flags

from experiments import _cli
from tpt_keras.errors import UsageError

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "saved_model", None, "A SavedModel, or the folder of its versions."
)
flags.DEFINE_list("modules", [], "Names of modules.")
flags.DEFINE_string("data_dir", "data", "Folder that prepare_data filled.")
flags.DEFINE_string("split", "interpolate", "Name of the split.")
flags.DEFINE_integer("count", 10, "Problems of each module.")


def main():
    if not FLAGS.saved_model or not FLAGS.modules:
        raise UsageError("--saved_model and --modules are needed.")
    if FLAGS.count <= 0:
        raise UsageError("--count must be positive.")
    import tensorflow_datasets as tfds

    from tpt_keras.serving.saved_model import SavedModel

    model = SavedModel(FLAGS.saved_model)
    for module in FLAGS.modules:
        name = f"mathematics_dataset/{module}"
        try:
            problems = tfds.load(
                name, data_dir=FLAGS.data_dir, split=FLAGS.split
            )
        except (
            tfds.core.DatasetNotFoundError,
            tfds.core.dataset_info.DatasetInfoFileError,  # half-written
            ValueError,
        ):
            raise UsageError(
                f"The folder {FLAGS.data_dir!r} holds no split {FLAGS.split!r} "
                f"of {name}. Make it with python -m experiments.prepare_data."
            ) from None
        batch = next(iter(problems.batch(FLAGS.count)))
        questions = batch["question"].numpy()
        for question, given, target in zip(
            questions, model.answer(list(questions)), batch["answer"].numpy()
        ):
            target = target.decode()
            mark = "right" if given.answer == target else "WRONG"
            print(f"{question.decode()}")
            print(f"    answer: {given.answer:20} target: {target:20} {mark}")


if __name__ == "__main__":
    _cli.run(main)

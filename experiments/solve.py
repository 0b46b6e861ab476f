"""Asks an exported model. Needs TensorFlow, no model code of this project.

    python -m experiments.solve --saved_model=saved_models/demo \
        --question="What is the tens digit of 31859?"
"""

import json
import os

from absl import flags

from experiments import _cli
from tpt_keras.errors import UsageError
from tpt_keras.serving.versions import CONFIG_ASSET
from tpt_keras.serving.versions import find_saved_model

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "saved_model", None, "A SavedModel, or the folder of its versions."
)
flags.DEFINE_multi_string("question", [], "A question; may be given again.")


def main():
    if not FLAGS.saved_model or not FLAGS.question:
        raise UsageError("--saved_model and --question are needed.")
    path = find_saved_model(FLAGS.saved_model)
    import tensorflow as tf

    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    # As bytes, for what was typed may be no valid text.
    questions = [os.fsencode(question) for question in FLAGS.question]
    outputs = signature(questions=tf.constant(questions))
    for question, answer, status in zip(
        FLAGS.question, outputs["answers"].numpy(), outputs["status"].numpy()
    ):
        if status != b"OK":
            raise UsageError(_explain(question, status.decode(), path))
        print(answer.decode())


def _explain(question, status, path):
    """What is wrong with a question, as one line."""
    config = json.loads((path / CONFIG_ASSET).read_text())
    known = "".join(s for s in config["vocabulary"] if len(s) == 1)
    if status == "UNKNOWN_CHARACTER":
        culprit = next(c for c in question if c not in known)
        return (
            f"The character {culprit!r} of {question!r} is not in the model's "
            f"vocabulary. Known characters: {known!r}."
        )
    if status == "TOO_LONG":
        return (
            f"The question {question[:40]!r}... has {len(question)} "
            f"characters. Shorten it to {config['max_question_length']}."
        )
    return f"The question {question!r} cannot be answered: {status}."


if __name__ == "__main__":
    _cli.run(main)

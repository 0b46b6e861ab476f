r"""Exports a model as a SavedModel.

    python -m experiments.export --model_dir=models/demo \
        --export_dir=saved_models/demo
"""

import os

from absl import flags

from tpt_keras.errors import check_choice
from tpt_keras.errors import require

from . import _cli
from . import _flags

FLAGS = flags.FLAGS

_flags.define_model_dir()
flags.DEFINE_bool("best", False, "Export the best model instead of the last.")
flags.DEFINE_string(
    "export_dir", None, "Folder of the model's versions.", required=True
)
flags.DEFINE_integer(
    "max_answer_length",
    None,
    "Most characters of an answer. Default: the model's.",
)
flags.DEFINE_integer(
    "beam_width", 1, "Width of the beam; 1 is greedy.", lower_bound=1
)
flags.DEFINE_float(
    "length_penalty", 0.0, "Preference for longer answers of a beam."
)
flags.DEFINE_string(
    "precision",
    "float32",
    "float32, bfloat16, or int8, which stores matrices as int8 and computes in "
    "float32.",
)


def check():
    require("tensorflow_serving", "serving")
    # An export needs TensorFlow, and loads the models of any backend.
    check_choice("KERAS_BACKEND", os.environ["KERAS_BACKEND"], ["tensorflow"])


def main():
    from tpt_keras.decoding import BeamSampler
    from tpt_keras.models.load_model import load_model
    from tpt_keras.serving.export import export

    version = export(
        load_model(FLAGS.model_dir, FLAGS.best),
        FLAGS.export_dir,
        FLAGS.max_answer_length,
        BeamSampler(FLAGS.beam_width, FLAGS.length_penalty)
        if FLAGS.beam_width != 1 or FLAGS.length_penalty
        else "greedy",
        FLAGS.precision,
    )
    print(version)


if __name__ == "__main__":
    _cli.run(main, check)

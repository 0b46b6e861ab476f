r"""Exports a model as a SavedModel.

Strings in, strings out:

    python -m experiments.export --model_dir=models/demo \
        --export_dir=saved_models/demo
"""

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "Folder of the trained model.")
flags.DEFINE_bool("best", False, "The best model in place of the last.")
flags.DEFINE_string("export_dir", None, "Folder of the model's versions.")
flags.DEFINE_integer(
    "max_answer_length", None, "In characters. Default: the model's."
)
flags.DEFINE_integer(
    "beam_width", 1, "Answers to follow; 1 is greedy.", lower_bound=1
)
flags.DEFINE_float(
    "length_penalty", 0.0, "How much longer answers are preferred."
)
flags.DEFINE_string(
    "precision",
    "float32",
    "Computes in float32, or in bfloat16, whose weights are of two bytes; with "
    "int8 weights are kept in one byte and made float32 when they are loaded.",
)


def main():
    if not FLAGS.model_dir or not FLAGS.export_dir:
        raise UsageError("--model_dir and --export_dir are needed.")
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
    _cli.run(main)

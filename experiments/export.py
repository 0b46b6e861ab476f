r"""Exports a model as a SavedModel, or as ONNX graphs.

    tpt_keras export --model=models/demo \
        --export_dir=saved_models/demo
    KERAS_BACKEND=torch tpt_keras export --model=models/demo \
        --export_dir=onnx/demo --format=onnx
"""

import os

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import require

from . import _flags

FLAGS = flags.FLAGS

_flags.define_model(with_best=True)
flags.DEFINE_string(
    "export_dir", None, "Folder of the model's versions.", required=True
)
flags.DEFINE_enum(
    "format",
    "saved_model",
    ["saved_model", "onnx"],
    "saved_model, for TF Serving, or onnx, which answers greedily.",
)
flags.DEFINE_integer(
    "max_answer_length",
    None,
    "Most characters of an answer. Default: the model's.",
)
flags.DEFINE_integer(
    "beam_width", 1, "Width of the beam; 1 is greedy.", lower_bound=1
)
flags.DEFINE_string(
    "precision",
    "float32",
    "float32; bfloat16, for a SavedModel; or int8, for ONNX.",
)


def check():
    backend = os.environ["KERAS_BACKEND"]
    if FLAGS.format == "saved_model":
        require("tensorflow_serving", "serving")
        # An export needs TensorFlow, and loads the models of any backend.
        check_choice("KERAS_BACKEND", backend, ["tensorflow"])
        check_choice("precision", FLAGS.precision, ("float32", "bfloat16"))
        return
    require("onnxscript", "onnx")
    if backend != "torch":
        raise UsageError(
            "ONNX graphs are made with PyTorch. Start the command with "
            "KERAS_BACKEND=torch, which loads the models of any backend."
        )
    check_choice("precision", FLAGS.precision, ("float32", "int8"))
    if FLAGS.beam_width != 1:
        raise UsageError(
            "`beam_width` is for a SavedModel. ONNX graphs answer greedily.",
            field="beam_width",
        )


def main():
    from tpt_keras.models.stored import load_model

    model = load_model(FLAGS.model, FLAGS.best)
    arguments = model, FLAGS.export_dir, FLAGS.max_answer_length
    if FLAGS.format == "onnx":
        from tpt_keras.serving.onnx_export import export_onnx

        print(export_onnx(*arguments, FLAGS.precision))
        return
    from tpt_keras.decoding import BeamSampler
    from tpt_keras.models.stored import resolve
    from tpt_keras.serving.export import export

    sampler = (
        BeamSampler(FLAGS.beam_width) if FLAGS.beam_width > 1 else "greedy"
    )
    card = resolve(FLAGS.model) / "README.md"
    card = card if card.is_file() else None
    print(export(*arguments, sampler, FLAGS.precision, card=card))

r"""Draws a metric of several trainings.

    tpt_keras compare --output=curves.png \
        --model_dirs=models/paper-0,models/small-0 --over=examples,minutes

Trainings that differ in their seed alone are averaged.
"""

from absl import flags

from tpt_keras.errors import check_choices
from tpt_keras.errors import require

from . import _flags

FLAGS = flags.FLAGS

_flags.define_model_dirs()
flags.DEFINE_string("metric", "val_sequence_accuracy", "Metric to draw.")
flags.DEFINE_list(
    "over", ["step"], "A panel for each: step, examples (seen), minutes."
)
flags.register_validator("over", bool, "name one or more")
flags.DEFINE_string("output", "comparison.png", "PNG file to write.")


def check():
    require("matplotlib", "analysis")
    check_choices("over", FLAGS.over, ("step", "examples", "minutes"))


def main():
    from tpt_keras.analysis.report import training_curves
    from tpt_keras.visualization.charts import draw_comparison

    curves = training_curves(FLAGS.model_dirs, FLAGS.metric)
    draw_comparison(curves, FLAGS.output, FLAGS.metric, FLAGS.over)
    print(FLAGS.output)

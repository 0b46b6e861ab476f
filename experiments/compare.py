r"""Draws one metric of several trainings.

One panel for every set of modules:

    python -m experiments.compare --output=curves.png \
        --model_dirs=models/paper-0,models/small-0
"""

import pathlib

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli
from . import _look_inside

FLAGS = flags.FLAGS

flags.DEFINE_list("model_dirs", [], "Folders of the trainings.")
flags.register_validator("model_dirs", bool, "name one training or more")
flags.DEFINE_string("metric", "val_sequence_accuracy", "Metric to draw.")
flags.DEFINE_string("output", "comparison.png", "PNG file to write.")


def check():
    _look_inside.require_analysis("matplotlib")


def main():
    from tpt_keras.files import named_in_errors
    from tpt_keras.training.state import model_folder
    from tpt_keras.training.state.logs import METRICS_FILE
    from tpt_keras.training.state.logs import read_metrics
    from tpt_keras.visualization.curves import draw_comparison

    runs = {}
    for model_dir in FLAGS.model_dirs:
        model_folder.read_config(model_dir)  # refuses other folders
        training = model_folder.read_training(model_dir)
        rows = read_metrics(model_dir)
        if not rows:
            raise UsageError(
                f"The folder {model_dir!r} has no training log "
                f"({METRICS_FILE}). Name the folder that the model was trained "
                "in; a compressed or converted model has none."
            )
        known = sorted(set().union(*rows) - {"step"})
        if FLAGS.metric not in known:
            raise UsageError(
                f"The training {model_dir!r} has no --metric="
                f"{FLAGS.metric!r} so far. It has: {', '.join(known)}."
            )
        title = ", ".join(training.get("modules", ())) or "other data"
        name = pathlib.Path(model_dir).name
        runs.setdefault(title, {})[name] = rows
    with named_in_errors(FLAGS.output):
        draw_comparison(runs, FLAGS.output, FLAGS.metric)
    print(FLAGS.output)


if __name__ == "__main__":
    _cli.run(main, check)

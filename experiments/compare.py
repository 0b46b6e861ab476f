r"""Draws how several trainings went.

A diagram for every module:

    python -m experiments.compare --output=curves.png \
        --model_dirs=models/paper-0,models/small-0
"""

import pathlib

from absl import flags

from tpt_keras.errors import UsageError

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list("model_dirs", [], "Folders of the trainings.")
flags.DEFINE_string("metric", "val_sequence_accuracy", "Metric to draw.")
flags.DEFINE_string("output", "comparison.png", "PNG file to write.")


def main():
    if not FLAGS.model_dirs:
        raise UsageError("--model_dirs is missing: which trainings?")
    from tpt_keras.files import named_in_errors
    from tpt_keras.training import model_folder
    from tpt_keras.training.metrics_log import read_metrics
    from tpt_keras.visualization.comparison import draw_comparison

    runs = {}
    for model_dir in FLAGS.model_dirs:
        model_folder.read_config(model_dir)  # refuses other folders
        training = model_folder.read_training(model_dir)
        rows = read_metrics(model_dir)
        if not any(FLAGS.metric in row for row in rows):
            raise UsageError(
                f"The training {model_dir!r} has no metric {FLAGS.metric!r} "
                "yet."
            )
        title = ", ".join(training["modules"])
        name = pathlib.Path(model_dir).name
        runs.setdefault(title, {})[name] = rows
    with named_in_errors(FLAGS.output):
        draw_comparison(runs, FLAGS.output, FLAGS.metric)
    print(FLAGS.output)


if __name__ == "__main__":
    _cli.run(main)

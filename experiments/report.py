r"""Reports models' accuracies beside the paper's.

    python -m experiments.report --model_dirs=models/demo,models/other \
        --splits=train,interpolate,extrapolate --output=report.html

Writes the paper's Table 1 with a row for each model as report.md, all numbers
as report.json, a figure for every split (report_interpolate.png), the accuracy
over the examples and the minutes of the trainings, with the time to 40, 60 and
76% (report_trainings.png), and report.html, a page with all of it and the wrong
answers.
report_predictions/ keeps every question, target, answer and log-probability as
JSON lines; they are not computed again.
"""

import pathlib

from absl import flags

from tpt_keras.errors import require

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list("model_dirs", None, "Folders of the models.", required=True)
flags.DEFINE_list(
    "splits",
    [],
    "Names of the splits; train is all training splits together. Default: "
    "the dataset's for evaluation (interpolate,extrapolate).",
)
flags.DEFINE_list(
    "modules",
    [],
    "Names of modules, patterns (numbers__*), or all. Default: those of the "
    "trainings.",
)
flags.DEFINE_string("data_dir", "", "Folder of the data. Default: trainings'.")
flags.DEFINE_string("dataset", "", "Default: the trainings'.")
flags.DEFINE_list("dataset_options", [], "Default: the trainings'.")
flags.DEFINE_integer(
    "examples",
    100,
    "Problems of each module and split, at most.",
    lower_bound=1,
)
flags.DEFINE_bool("best", False, "Use the best models in place of the last.")
flags.DEFINE_integer(
    "batch_size", 64, "Questions decoded together.", lower_bound=1
)
flags.DEFINE_string("output", "report.html", "Page to write; see above.")
flags.register_validator(
    "output",
    lambda path: pathlib.Path(path).suffix == ".html",
    "the page's name must end in .html; the other files share it",
)


def check():
    require("matplotlib", "analysis")


def main():
    from tpt_keras.analysis.report import write_report

    write_report(
        pathlib.Path(FLAGS.output),
        FLAGS.model_dirs,
        FLAGS.splits,
        FLAGS.examples,
        FLAGS.best,
        FLAGS.batch_size,
        dataset=FLAGS.dataset,
        data_dir=FLAGS.data_dir,
        dataset_options=FLAGS.dataset_options,
        modules=FLAGS.modules,
    )
    print(FLAGS.output)


if __name__ == "__main__":
    _cli.run(main, check, resumes=True)

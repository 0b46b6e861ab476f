r"""Reports models' accuracies beside the paper's.

    python -m experiments.report --model_dirs=models/demo,models/other \
        --splits=train,interpolate,extrapolate --output=report.html

Writes the paper's Table 1 with a row for each model as report.md, all numbers
as report.json, a figure for every split (report_interpolate.png), and
report.html, a page with the table, the bars and the wrong answers.
report_predictions/ keeps every question, target, answer and log-probability as
JSON lines; they are not computed again.
"""

import json
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_choices
from tpt_keras.errors import require

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list("model_dirs", [], "Folders of the models.")
flags.register_validator("model_dirs", bool, "name one model or more")
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
    from tpt_keras.data_generators import TASKS
    from tpt_keras.data_generators import select_groups
    from tpt_keras.training.state.model_folder import read_training

    trainings = list(map(read_training, FLAGS.model_dirs))
    fields = ("dataset", "data_dir", "dataset_options", "modules")
    problems = {name: given_or_shared(name, trainings) for name in fields}
    check_choice("dataset", problems["dataset"], TASKS)
    task = TASKS[problems["dataset"]]
    check_choices("split", FLAGS.splits, task.known_splits)
    problems["splits"] = list(dict.fromkeys(FLAGS.splits or task.splits))
    problems["modules"] = list(
        select_groups(
            problems["dataset"], problems["data_dir"], problems["modules"]
        )
    )
    problems["examples"] = FLAGS.examples
    write_report(
        pathlib.Path(FLAGS.output),
        FLAGS.model_dirs,
        problems,
        FLAGS.best,
        FLAGS.batch_size,
    )
    print(FLAGS.output)


def given_or_shared(name, trainings):
    """Returns a flag's value, or else the one that all trainings share."""
    if FLAGS[name].value:
        return FLAGS[name].value
    found = {
        json.dumps(training[name]) for training in trainings if name in training
    }
    if len(found) == 1:
        return json.loads(*found)
    if name == "dataset_options":  # converted models have none
        return []
    raise UsageError(
        f"The trainings of these models have {len(found) or 'no'} different "
        f"`{name}`. Give one.",
        field=name,
    )


if __name__ == "__main__":
    _cli.run(main, check, resumes=True)

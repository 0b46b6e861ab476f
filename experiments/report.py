r"""Reports models' accuracies beside the paper's.

    tpt_keras report --models=models/demo,models/other \
        --splits=train,interpolate,extrapolate --output=report.md

Writes the paper's Table 1 with a row for each model and the time to 40, 60 and
76% (report.md), all numbers (report.json), the bars of every split
(report_interpolate.png), and the accuracy over the examples and the minutes of
the trainings (report_trainings.png).
"""

import pathlib

from absl import flags

from tpt_keras.errors import require

from . import _flags
from ._flags import Problems

FLAGS = flags.FLAGS

flags.DEFINE_list("models", [], "Folders of the models or trainings.")
flags.register_validator("models", bool, "name one or more")
flags.register_validator(
    "models",
    lambda paths: all(map(_flags.may_be_there, paths)),
    "not found",
)
flags.DEFINE_list(
    "splits",
    [],
    "Names of the splits; train is all training splits together. Default: "
    "the dataset's for evaluation (interpolate,extrapolate).",
)
_flags.define(Problems, leave_out=("split",))
flags.DEFINE_integer(
    "examples",
    100,
    "Problems of each module and split, at most.",
    lower_bound=1,
)
flags.DEFINE_bool("best", False, "Use the best models in place of the last.")
flags.DEFINE_integer("batch_size", 256, "Problems in a batch.", lower_bound=1)
flags.DEFINE_string("output", "report.md", "Tables to write; see above.")
flags.register_validator(
    "output",
    lambda path: pathlib.Path(path).suffix == ".md",
    "the name must end in .md; the other files share it",
)


def check():
    require("matplotlib", "analysis")


def main():
    from tpt_keras.analysis.report import write_report

    write_report(
        pathlib.Path(FLAGS.output),
        FLAGS.models,
        FLAGS.splits,
        FLAGS.examples,
        FLAGS.best,
        FLAGS.batch_size,
        **_flags.values(Problems),
    )
    print(FLAGS.output)

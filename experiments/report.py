r"""Reports models' accuracies beside the paper's.

    python -m experiments.report --model_dirs=models/demo,models/other \
        --splits=interpolate,extrapolate --output=report.html

Writes the paper's Table 1 with a row for each model as report.md, and all
numbers as report.json. With pip install 'tpt_keras[analysis]' it also draws a
figure for every split (report_interpolate.png) and report.html, a page with
the table, the bars and the wrong answers. report_predictions/ keeps every
question, target, answer and log-probability as JSON lines; they are not
computed again.
"""

import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_names

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list("model_dirs", [], "Folders of the models.")
flags.register_validator("model_dirs", bool, "name one model or more")
flags.DEFINE_list(
    "splits",
    ["interpolate", "extrapolate"],
    "Names of the splits; train is all training splits together.",
)
flags.register_validator("splits", bool, "name one split or more")
flags.DEFINE_list(
    "modules",
    [],
    "Names of modules, patterns (numbers__*), or all. Default: those of the "
    "trainings.",
)
flags.DEFINE_string(
    "data_dir", None, "Folder of the data. Default: the trainings'."
)
flags.DEFINE_string("dataset", None, "Default: the trainings'.")
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


def main():
    from tpt_keras.analysis.report import missing_packages
    from tpt_keras.analysis.report import write_report

    page = pathlib.Path(FLAGS.output)
    write_report(
        page,
        FLAGS.model_dirs,
        choose_problems(),
        FLAGS.best,
        FLAGS.batch_size,
    )
    print(page.with_suffix(".md") if missing_packages() else page)


def choose_problems():
    """Returns the dict of problems that all models answer."""
    from tpt_keras.data_generators.mathematics_modules import select_modules
    from tpt_keras.data_generators.prepared_data import DATASETS
    from tpt_keras.training.problem_samples import TRAIN

    dataset = of_trainings("dataset", FLAGS.dataset, "mathematics_dataset")
    check_choice("dataset", dataset, DATASETS)
    splits = list(dict.fromkeys(FLAGS.splits))
    check_names("split", splits, {TRAIN, *DATASETS[dataset]})
    modules = of_trainings("modules", list(select_modules(FLAGS.modules)))
    return {
        "dataset": dataset,
        "data_dir": of_trainings("data_dir", FLAGS.data_dir),
        "modules": modules,
        "splits": splits,
        "examples": FLAGS.examples,
    }


def of_trainings(name, given, default=None):
    """Returns a flag's value, or the one that all trainings share."""
    from tpt_keras.training.model_folder import read_training

    if given:
        return given
    found = []
    for model_dir in FLAGS.model_dirs:
        value = read_training(model_dir).get(name, default)
        if not value:
            raise UsageError(
                f"The folder {model_dir!r} does not name the {name} of its "
                f"training. Give --{name}."
            )
        if isinstance(value, (list, tuple)):
            value = sorted(value)
        if value not in found:
            found.append(value)
    if len(found) > 1:
        raise UsageError(
            f"The models were trained with several {name}. Give --{name}."
        )
    return found[0]


if __name__ == "__main__":
    _cli.run(main, resumes=True)

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

import importlib.util
import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_choice
from tpt_keras.errors import check_choices

from . import _cli

FLAGS = flags.FLAGS

flags.DEFINE_list("model_dirs", [], "Folders of the models.")
flags.register_validator("model_dirs", bool, "name one model or more")
flags.DEFINE_list(
    "splits",
    None,
    "Names of the splits; train is all training splits together. Default: "
    "the dataset's for evaluation (interpolate,extrapolate).",
)
flags.register_validator(
    "splits", lambda splits: splits != [], "name one split or more"
)
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
    from tpt_keras.analysis.report import write_report

    page = pathlib.Path(FLAGS.output)
    write_report(
        page,
        FLAGS.model_dirs,
        choose_problems(),
        FLAGS.best,
        FLAGS.batch_size,
    )
    has_page = importlib.util.find_spec("matplotlib") is not None
    print(page if has_page else page.with_suffix(".md"))


def choose_problems():
    """Returns the dict of problems that all models answer."""
    from tpt_keras.data_generators import TASKS
    from tpt_keras.data_generators import select_groups

    dataset = of_trainings("dataset", FLAGS.dataset, "mathematics_dataset")
    check_choice("dataset", dataset, TASKS)
    splits = list(dict.fromkeys(FLAGS.splits or TASKS[dataset].splits))
    check_choices("split", splits, TASKS[dataset].known_splits)
    modules = of_trainings("modules", FLAGS.modules)
    data_dir = of_trainings("data_dir", FLAGS.data_dir)
    return {
        "dataset": dataset,
        "data_dir": data_dir,
        "modules": list(select_groups(dataset, data_dir, modules)),
        "splits": splits,
        "options": options_of_trainings(),
        "examples": FLAGS.examples,
    }


def options_of_trainings():
    """Returns the one list of `dataset_options` of all models' trainings."""
    from tpt_keras.training.state.model_folder import read_training

    options = {
        tuple(read_training(model_dir).get("dataset_options", ()))
        for model_dir in FLAGS.model_dirs
    }
    if len(options) > 1:
        raise UsageError(
            "The models were trained with several `dataset_options`. Report "
            "them apart.",
            field="model_dirs",
        )
    return list(*options)


def of_trainings(name, given, default=None):
    """Returns a flag's value, or the one that all trainings share."""
    from tpt_keras.training.state.model_folder import read_training

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

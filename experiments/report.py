r"""Reports models' accuracies beside the paper's.

    python -m experiments.report --model_dirs=models/demo,models/other \
        --splits=interpolate,extrapolate --output=report.html

Leaves the paper's Table 1 with a row for each model, report.md, and the same
in numbers, report.json; its appendix's figures, report_interpolate.png and so
on; report.html, which has both and what was answered wrong; and in
report_predictions/ every question, its target, the model's answer and its
log-probability, a line of JSON each. What is there is not computed again. The
page is drawn with plotly: pip install 'tpt_keras[analysis]'.
"""

import pathlib

from absl import flags

from tpt_keras.errors import UsageError
from tpt_keras.errors import check_names

from . import _cli
from ._report import write_report

FLAGS = flags.FLAGS

flags.DEFINE_list("model_dirs", [], "Folders of the models.")
flags.DEFINE_list(
    "splits",
    ["interpolate", "extrapolate"],
    "Names of the splits; train is all training splits together.",
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
    "examples", 100, "Problems of each module and split, at most."
)
flags.DEFINE_bool("best", False, "The best models in place of the last.")
flags.DEFINE_integer("batch_size", 64, "Questions decoded together.")
flags.DEFINE_string("output", "report.html", "Page to write; see above.")


def main():
    check_flags()
    page = pathlib.Path(FLAGS.output)
    write_report(
        page,
        FLAGS.model_dirs,
        choose_problems(),
        FLAGS.best,
        FLAGS.batch_size,
    )
    print(page)


def check_flags():
    """Refuses what makes no sense before anything is loaded."""
    if not FLAGS.model_dirs:
        raise UsageError("--model_dirs is missing: which models?")
    if not FLAGS.splits:
        raise UsageError("--splits is empty: name interpolate, or others.")
    for name in ("examples", "batch_size"):
        if FLAGS[name].value <= 0:
            raise UsageError(f"--{name} must be positive.")
    if pathlib.Path(FLAGS.output).suffix != ".html":
        raise UsageError(
            f"--output={FLAGS.output!r} is no name of a page: let it end in "
            ".html. The other files get its name."
        )


def choose_problems():
    """Which problems all models are asked: a dict."""
    from tpt_keras.data_generators.mathematics_modules import select_modules
    from tpt_keras.data_generators.prepared_data import DATASETS
    from tpt_keras.training.problem_samples import TRAIN

    dataset = of_trainings("dataset", FLAGS.dataset, "mathematics_dataset")
    check_names("dataset", [dataset], DATASETS)
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
    """What a flag says, or otherwise the models' trainings all together."""
    from tpt_keras.training.model_folder import read_training

    if given:
        return given
    found = []
    for model_dir in FLAGS.model_dirs:
        value = read_training(model_dir).get(name, default)
        if not value:
            raise UsageError(
                f"The model {model_dir!r} does not tell the {name} of its "
                f"training: name --{name}."
            )
        if isinstance(value, (list, tuple)):
            value = sorted(value)
        if value not in found:
            found.append(value)
    if len(found) > 1:
        raise UsageError(
            f"The models were trained with several {name}: name --{name}."
        )
    return found[0]


if __name__ == "__main__":
    _cli.run(main, resumes=True)
